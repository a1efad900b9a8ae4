// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// W3C Trace Context (recommendation of 23 November 2021): of which trace of its
// client a call is part. The daemon begins no spans of its own: what it logs
// about a call belongs to the client's span. What is not as the recommendation
// says is ignored, never an error; a tracestate is worth nothing without a
// traceparent.
//
// Values and pure functions; bounded, whatever was sent.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "grpcpp/server_context.h"

namespace tetrad {

// Of metadata, in both directions.
inline constexpr char kTraceparentKey[] = "traceparent";

struct TraceContext {
  std::optional<std::string> trace_id = {};  // 32 lower-case hexadecimal digits
  std::optional<std::string> span_id = {};   // 16; both are there, or neither
  bool sampled = false;
  std::optional<std::string> tracestate = {};  // list members as sent, comma between them

  // As this version writes it: what the daemon understood. Only with a trace_id.
  std::string traceparent() const;
};

// More than one traceparent is as good as none; several tracestates are one list.
TraceContext ParseTraceContext(std::span<const std::string_view> traceparents,
                               std::span<const std::string_view> tracestates);
TraceContext TraceContextOf(const grpc::CallbackServerContext& context);

}  // namespace tetrad
