// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: any bytes as an address to listen on and as a request id that a client sends.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"

#include "engine/support/status_macros.h"
#include "server/listen_address.h"
#include "server/request_id.h"

namespace tetrad {
namespace {

void CheckAddress(std::string_view text) {
  const auto address = ParseListenAddress(text);
  if (!address.ok()) {
    const auto message = address.status().message();
    TETRAD_CHECK(absl::IsInvalidArgument(address.status()) && message.size() < 1024);
    TETRAD_CHECK(std::ranges::all_of(message, [](char c) { return c >= ' ' && c <= '~'; }));
    return;
  }
  if (address->kind == ListenAddress::Kind::kTcp) {
    TETRAD_CHECK(address->port >= 0 && address->port <= 65535 && !address->host.empty());
  } else {
    TETRAD_CHECK(address->path.starts_with('/'));
  }
  // What it is printed as is the same address.
  const auto again = ParseListenAddress(address->ToString());
  TETRAD_CHECK(again.ok() && again->kind == address->kind && again->path == address->path);
  TETRAD_CHECK(again->host == address->host && again->port == address->port);
}

void CheckRequestId(std::string_view offered) {
  RequestIds ids(absl::UnixEpoch());
  const std::string chosen = ids.Choose(offered);
  TETRAD_CHECK(IsRequestId(chosen) && (chosen == offered) == IsRequestId(offered));
}

}  // namespace
}  // namespace tetrad

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  tetrad::CheckAddress(text);
  tetrad::CheckRequestId(text);
  return 0;
}
