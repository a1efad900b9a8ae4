// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: any bytes as an allocation log. What is accepted must read back
// to the same bytes and replay without a double use; what is refused must name a
// line in short printable text.
// By hand:  clang++ -fsanitize=fuzzer,address,undefined  with this file and the library's sources.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/container/flat_hash_map.h"

#include "engine/allocation_log.h"
#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

void CheckRefusal(const absl::Status& status) {
  constexpr size_t kLongestMessage = 512;
  const std::string_view message(status.message().data(), status.message().size());
  TETRAD_CHECK(absl::IsInvalidArgument(status));
  TETRAD_CHECK(message.substr(0, 5) == "line " && message.size() <= kLongestMessage);
  TETRAD_CHECK(std::ranges::all_of(message, [](char c) { return c >= ' ' && c <= '~'; }));
}

void CheckTrace(const AllocationTrace& trace, std::string_view text) {
  TETRAD_CHECK(FormatAllocationLog(trace) == text);
  absl::flat_hash_map<uint64_t, int64_t> live;
  for (const AllocationEvent& event : trace.events) {
    TETRAD_CHECK(event.bytes > 0 && event.number > 0);
    if (event.op == AllocationEvent::Op::kFree) {
      TETRAD_CHECK(live.at(event.number) == event.bytes);
      live.erase(event.number);
    } else if (event.outcome == absl::StatusCode::kOk) {
      TETRAD_CHECK(live.try_emplace(event.number, event.bytes).second);
    }
  }
}

}  // namespace
}  // namespace tetrad

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto trace = tetrad::ParseAllocationLog(text);
  trace.ok() ? tetrad::CheckTrace(*trace, text) : tetrad::CheckRefusal(trace.status());
  return 0;
}
