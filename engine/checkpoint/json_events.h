// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// JsonEvents: one pass over JSON that somebody else wrote, in bounded memory.
//
// Nothing is built: the handler sees each token once and keeps what it wants. Nesting is limited,
// so hostile depth costs nothing; the parser's own memory is a small multiple of the longest token.
// Not well-formed JSON, text that is not UTF-8, and anything after the value are INVALID_ARGUMENT.
// No exception leaves ParseJson. Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace tetrad {

struct JsonEvent {
  enum class Kind : uint8_t {
    kBeginObject,
    kEndObject,
    kBeginArray,
    kEndArray,
    kKey,
    kString,
    kUnsigned,     // an integer in [0, 2^64)
    kOtherNumber,  // negative, fractional, with an exponent, or at or past 2^64
    kBoolOrNull,
  };
  Kind kind;
  int depth;              // objects and arrays open around this event, its own not counted
  std::string_view text;  // of kKey and kString, valid during the call
  uint64_t number = 0;    // of kUnsigned
};

inline constexpr int kMaxJsonDepth = 32;

// Calls `handler` for every event of `text`, in order, until it returns an error, which is handed
// on unchanged.
absl::Status ParseJson(std::string_view text,
                       absl::FunctionRef<absl::Status(const JsonEvent&)> handler);

}  // namespace tetrad
