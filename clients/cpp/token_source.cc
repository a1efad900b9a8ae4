// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cpp/token_source.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace tetrad {
namespace {

constexpr size_t kMaxToken = 1024;
constexpr std::string_view kPunctuation = "-._~+/";

}  // namespace

bool IsToken(std::string_view text) {
  const size_t end = text.find_last_not_of('=');
  if (text.size() > kMaxToken || end == std::string_view::npos) return false;
  return std::ranges::all_of(text.substr(0, end + 1), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           kPunctuation.find(c) != std::string_view::npos;
  });
}

absl::StatusOr<std::unique_ptr<TokenSource>> TokenSource::Open(std::string token,
                                                               std::string file) {
  if (!token.empty() && !file.empty()) {
    return absl::InvalidArgumentError("token and token_file exclude each other");
  }
  if (file.empty() && !IsToken(token)) {
    return absl::InvalidArgumentError("token: it has characters that no bearer token has");
  }
  std::unique_ptr<TokenSource> source(new TokenSource(std::move(token), std::move(file)));
  const std::lock_guard lock(source->mutex_);
  if (source->file_.empty()) return source;
  source->Changed();
  if (source->Read()) return source;
  return absl::InvalidArgumentError(
      absl::StrCat("token_file: ", source->file_, " cannot be read or holds no bearer token"));
}

std::string TokenSource::Get() {
  const std::lock_guard lock(mutex_);
  if (!file_.empty() && Changed()) Read();
  return token_;
}

bool TokenSource::Changed() {
  struct stat now {};
  if (::stat(file_.c_str(), &now) != 0) return false;
  const struct stat before = std::exchange(seen_, now);
  return before.st_dev != now.st_dev || before.st_ino != now.st_ino ||
         before.st_size != now.st_size || before.st_mtim.tv_sec != now.st_mtim.tv_sec ||
         before.st_mtim.tv_nsec != now.st_mtim.tv_nsec;
}

bool TokenSource::Read() {
  std::ifstream stream(file_);
  std::string text(2 * kMaxToken, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(stream.gcount(), 0)));
  const std::string token(absl::StripAsciiWhitespace(text));
  if (!IsToken(token)) return false;
  token_ = token;
  return true;
}

}  // namespace tetrad
