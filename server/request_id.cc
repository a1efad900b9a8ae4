// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/request_id.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace tetrad {
namespace {

constexpr size_t kLongest = 128;
constexpr std::string_view kPunctuation = "._:/+=-";

}  // namespace

bool IsRequestId(std::string_view text) {
  return !text.empty() && text.size() <= kLongest && std::ranges::all_of(text, [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           kPunctuation.find(c) != std::string_view::npos;
  });
}

RequestIds::RequestIds(absl::Time generation)
    : generation_(static_cast<uint64_t>(absl::ToUnixMicros(generation))) {}

bool RequestIds::Offered(const grpc::CallbackServerContext& context) {
  return context.client_metadata().contains(kRequestIdKey);
}

std::string RequestIds::Choose(const grpc::CallbackServerContext& context) {
  const auto offered = context.client_metadata().find(kRequestIdKey);
  if (offered == context.client_metadata().end()) return Choose(std::string_view());
  return Choose(std::string_view(offered->second.data(), offered->second.size()));
}

std::string RequestIds::Choose(std::string_view offered) {
  if (IsRequestId(offered)) return std::string(offered);
  return absl::StrCat(absl::Hex(generation_), "-",
                      absl::Hex(next_.fetch_add(1, std::memory_order_relaxed)));
}

}  // namespace tetrad
