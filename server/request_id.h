// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Request ids: the name of one call in log lines and in the client's own
// records. A client may bring one, so that a trace crosses the daemon; else the
// daemon gives one that no other call of this or an earlier process has.
//
// A client is told the id of every call that fails, of every stream in which an
// answer does, and of every call for which it sent one: then it cares, and may
// have sent what is not an id. Others are spared metadata that nobody reads: it
// is a good part of what a small call costs.
//
// Thread-safe, lock-free.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "grpcpp/server_context.h"

namespace tetrad {

// Of metadata, in both directions.
inline constexpr char kRequestIdKey[] = "x-request-id";

// [A-Za-z0-9._:/+=-]{1,128}: safe in logs, shells and headers.
bool IsRequestId(std::string_view text);

class RequestIds {
 public:
  // `generation`: when the process started.
  explicit RequestIds(absl::Time generation);

  // Whether the client offers something, be it an id or not.
  static bool Offered(const grpc::CallbackServerContext& context);

  // What the client offers, if that is an id; else a new one.
  std::string Choose(const grpc::CallbackServerContext& context);
  std::string Choose(std::string_view offered);

 private:
  const uint64_t generation_;
  std::atomic<uint64_t> next_{1};
};

}  // namespace tetrad
