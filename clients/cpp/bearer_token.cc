// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cpp/bearer_token.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "clients/cpp/small_file.h"

namespace tetrad {
namespace {

// Metadata beyond 8 KiB is refused by the daemon's RPC library.
constexpr size_t kLongest = 4096;
constexpr std::string_view kPunctuation = "-._~+/=";  // RFC 6750, section 2.1

absl::Status Check(const std::string& token, const std::string& source) {
  if (token.empty() || token.size() > kLongest) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, ": the token has ", token.size(), " bytes, not 1 to ", kLongest));
  }
  const bool legal = std::ranges::all_of(token, [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           kPunctuation.find(c) != std::string_view::npos;
  });
  if (legal) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(source, ": a token has letters, digits and -._~+/= only"));
}

absl::StatusOr<std::string> ReadToken(const std::string& file) {
  absl::StatusOr<std::string> text = ReadSmallFile("token_file", file);
  if (!text.ok()) return text.status();
  std::string token(absl::StripAsciiWhitespace(*text));
  if (absl::Status status = Check(token, absl::StrCat("token_file ", file)); !status.ok()) {
    return status;
  }
  return token;
}

}  // namespace

BearerToken::BearerToken(std::string value, std::string file)
    : empty_(value.empty()), file_(std::move(file)), value_(std::move(value)) {}

absl::StatusOr<std::unique_ptr<BearerToken>> BearerToken::Make(const std::string& token,
                                                               const std::string& file) {
  if (!token.empty() && !file.empty()) {
    return absl::InvalidArgumentError("token and token_file exclude each other");
  }
  std::string value = token;
  if (!token.empty()) {
    if (absl::Status status = Check(token, "token"); !status.ok()) return status;
  } else if (!file.empty()) {
    absl::StatusOr<std::string> read = ReadToken(file);
    if (!read.ok()) return read.status();
    value = *std::move(read);
  }
  return std::unique_ptr<BearerToken>(new BearerToken(std::move(value), file));
}

std::string BearerToken::Header() const {
  const std::lock_guard lock(mutex_);
  return absl::StrCat("Bearer ", value_);
}

int64_t BearerToken::generation() const {
  const std::lock_guard lock(mutex_);
  return generation_;
}

bool BearerToken::Renew(int64_t generation) {
  if (file_.empty()) return false;
  // One that cannot be read now leaves what is there: the daemon has the last word.
  absl::StatusOr<std::string> read = ReadToken(file_);
  const std::lock_guard lock(mutex_);
  if (read.ok() && *read != value_) {
    value_ = *std::move(read);
    ++generation_;
  }
  return generation_ != generation;
}

}  // namespace tetrad
