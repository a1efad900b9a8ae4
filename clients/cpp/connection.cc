// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cpp/connection.h"

#include <algorithm>
#include <random>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace tetrad {
namespace {

constexpr absl::Duration kLongestCall = absl::Hours(24 * 3650);
// How long a stop request may go unheard while a connection is waited for: the
// RPC library has no way to end that wait early.
constexpr absl::Duration kHearing = absl::Milliseconds(50);

// The alphabet of a traceparent of any version. What is outside it could not be
// sent at all; whether it makes sense is for the daemon to find out.
bool LooksLikeTraceparent(std::string_view text) {
  constexpr size_t kLongest = 256;
  return !text.empty() && text.size() <= kLongest &&
         text.find_first_not_of("0123456789abcdef-") == std::string_view::npos;
}

double Chance() {
  std::random_device device;
  return std::uniform_real_distribution<double>(0, 1)(device);
}

}  // namespace

absl::Time DeadlineOf(const CallOptions& options, absl::Duration default_deadline) {
  const absl::Duration limit =
      options.deadline > absl::ZeroDuration() ? options.deadline : default_deadline;
  return absl::Now() + std::min(limit, kLongestCall);
}

void AddMetadata(const CallOptions& options, const BearerToken& token,
                 grpc::ClientContext& context) {
  if (!token.empty()) context.AddMetadata("authorization", token.Header());
  if (LooksLikeTraceparent(options.traceparent)) {
    context.AddMetadata("traceparent", options.traceparent);
  }
}

absl::Status Client::Connection::Named(const absl::Status& status) const {
  if (status.code() != absl::StatusCode::kUnavailable) return status;
  absl::Status named(status.code(), absl::StrCat(endpoint, ": ", status.message()));
  status.ForEachPayload([&named](absl::string_view url, const absl::Cord& payload) {
    named.SetPayload(url, payload);
  });
  return named;
}

absl::Status Client::Connection::AwaitConnection(absl::Time deadline,
                                                 const std::stop_token& cancel) const {
  absl::Time limit = absl::InfinitePast();
  for (;;) {
    const grpc_connectivity_state state = channel->GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY) return absl::OkStatus();
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN) {
      return absl::UnavailableError(
          options.tls.has_value()
              ? "nobody accepts connections there, or one side refused the other's certificate"
              : "nobody accepts connections there");
    }
    if (cancel.stop_requested()) return absl::CancelledError("the call was cancelled");
    const absl::Time now = absl::Now();
    if (limit == absl::InfinitePast()) limit = std::min(deadline, now + options.connect_timeout);
    if (now >= limit && limit == deadline) {
      return absl::DeadlineExceededError("the deadline passed before there was a connection");
    }
    if (now >= limit) {
      return absl::UnavailableError(
          absl::StrCat("no answer within ", absl::FormatDuration(options.connect_timeout)));
    }
    channel->WaitForStateChange(state, absl::ToChronoTime(std::min(limit, now + kHearing)));
  }
}

// Also a sleep of a known length waits for the channel: only while somebody does
// the RPC library reads its sockets, and so connects, or hears that a daemon left.
bool Client::Connection::Pause(absl::Time until, bool or_connected,
                               const std::stop_token& cancel) const {
  for (;;) {
    if (cancel.stop_requested()) return false;
    const absl::Time now = absl::Now();
    const grpc_connectivity_state state = channel->GetState(/*try_to_connect=*/true);
    if (now >= until || (or_connected && state == GRPC_CHANNEL_READY)) return true;
    channel->WaitForStateChange(state, absl::ToChronoTime(std::min(until, now + kHearing)));
  }
}

absl::Status Client::Connection::Repeated(Rpc rpc, const CallOptions& call,
                                          absl::Duration default_deadline,
                                          absl::FunctionRef<Attempted(absl::Time)> attempt) {
  const absl::Time deadline = DeadlineOf(call, default_deadline);
  CallRetries calls(rpc, options.attempts, deadline);
  for (;;) {
    const int64_t generation = token->empty() ? 0 : token->generation();
    Attempted attempted{AwaitConnection(deadline, call.cancel)};
    const bool sent = attempted.status.ok();
    if (sent) attempted = attempt(deadline);
    const absl::Status& status = attempted.status;
    if (status.ok()) return status;

    // Refused before anything of the request was looked at.
    if (!attempted.last && absl::IsUnauthenticated(status) && token->Renew(generation) &&
        calls.OnceMore()) {
      retries.fetch_add(1, std::memory_order_relaxed);
      continue;
    }
    const absl::Time now = absl::Now();
    const std::optional<absl::Duration> delay = calls.After(status, sent, now, Chance());
    if (attempted.last || !delay.has_value() || !retry_budget.Spend(now)) return Named(status);
    if (!Pause(now + *delay, /*or_connected=*/!sent, call.cancel)) {
      return absl::CancelledError("the call was cancelled");
    }
    retries.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace tetrad
