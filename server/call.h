// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Call: one RPC from its arrival until its reply was handed to the network.
//
// Every service handler owns one: it knows the client and checks what it may do
// (access.h), passes the gate, names the call (request_id.h says when the client
// is told the name), knows its trace
// (a client that sent one is told what was understood of it), and on
// destruction counts the call with its code, time and bytes and, at level
// debug, logs them. A call that waits for its client says so, and is ended if
// the client stands still. Guarded() is the edge at which exceptions of libraries
// become a status.
//
// Not thread-safe; a reactor uses it from one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"

#include "engine/launch.h"
#include "engine/support/error_detail.h"
#include "server/progress_timer.h"
#include "server/service_context.h"
#include "server/trace_context.h"

namespace tetrad {

// Whose call it is and out of which share of the device, its id, and the client's
// trace it is part of, if any. But for the share they go into every log line about it.
struct Caller {
  std::string client;
  Flow flow;
  std::string request;
  TraceContext trace = {};
  // Not explicit, for bodies of calls that take only the client's name.
  operator const std::string&() const { return client; }  // NOLINT(google-explicit-constructor)
};

// Up to this size messages are copied on the RPC library's threads: a change of
// thread would cost more than the copy.
inline constexpr int64_t kCopyHereBytes = 64 << 10;

class Call {
 public:
  Call(const ServiceContext& service, Method method, grpc::CallbackServerContext& context);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // UNAUTHENTICATED, PERMISSION_DENIED: this client may not call this method.
  // UNAVAILABLE if the daemon takes no calls any more, RESOURCE_EXHAUSTED if the
  // client has too many.
  const absl::Status& admission() const { return admission_; }
  // A drain no longer waits for this call.
  void LeaveGate() { pass_ = CallGate::Pass(); }
  const Caller& caller() const { return caller_; }
  const std::string& client() const { return caller_.client; }
  const std::string& request() const { return caller_.request; }

  // Just before the client is waited for: for its next message, or until it has
  // taken one of `bytes`. If it stands still the RPC library is told to end the
  // RPC, and whatever is pending there comes back failed.
  void AwaitClient(int64_t bytes = 0);
  // Before a reply that ends the call: its bytes are counted, and it is waited
  // for if it is large; small ones are not worth an alarm.
  void AwaitReply(int64_t bytes);
  // When that came back. False if the client was given up: End(Stalled()).
  bool ClientMoved() { return progress_.Resume(); }
  // DEADLINE_EXCEEDED.
  absl::Status StalledStatus() const;
  // The same, and counts it.
  absl::Status Stalled();
  // Before the first wait: `stalled` ends the call instead, on a thread of the RPC
  // library.
  void OnStalled(ProgressTimer::Stalled stalled) { progress_.SetStalled(std::move(stalled)); }
  // Before the RPC is gone, if this may outlive it.
  void StopWaiting() {
    progress_.Stop();
    lasting_.Leave();
  }

  void AddReceived(int64_t bytes) { received_bytes_ += bytes; }
  void AddSent(int64_t bytes) { sent_bytes_ += bytes; }

  // Notes how the call ends; what to finish the RPC with. Once, before Finish(),
  // because it may add to the trailing metadata.
  grpc::Status End(const absl::Status& status);
  // Notes a failure, of the call or of one answer in it; logs those that are ours
  // to look into, and refusals, for which `detail` has the reason.
  void Report(const grpc::Status& status, const std::optional<ErrorDetail>& detail = std::nullopt);

 private:
  Caller Admit();  // sets admission_

  const ServiceContext& service_;
  grpc::CallbackServerContext& context_;
  const Method method_;
  absl::Status admission_;
  Access::Membership lasting_;
  const Caller caller_;
  const std::chrono::steady_clock::time_point began_;
  CallGate::Pass pass_;
  ClientCalls::Pass client_pass_;
  grpc::StatusCode code_ = grpc::StatusCode::UNKNOWN;
  bool failed_ = false;  // it, or an answer in it
  int64_t received_bytes_ = 0;
  int64_t sent_bytes_ = 0;
  ProgressTimer progress_;  // last: its callback uses all above
};

// Runs `body`; std::bad_alloc becomes RESOURCE_EXHAUSTED, others INTERNAL.
absl::Status Guarded(absl::FunctionRef<absl::Status()> body);

// The raw_deadline() of a call, InfiniteFuture() if it has none. Not made of its
// deadline(): that wraps into the past after the year 2262, and clients that
// mean "for ever" ask for later.
absl::Time ToTime(gpr_timespec deadline);

// What a cancelled call ends with.
absl::Status CancelledStatus(const grpc::CallbackServerContext& context);

// RESOURCE_EXHAUSTED if requests and replies under way hold too much already,
// INVALID_ARGUMENT if so much could never be had.
// Whoever took bytes gives them back.
absl::Status TakeCallBytes(const ServiceContext& service, int64_t bytes);

// RESOURCE_EXHAUSTED: `pool` refused a job.
absl::Status PoolFull(const WorkerPool& pool);

}  // namespace tetrad
