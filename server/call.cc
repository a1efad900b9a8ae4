// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/call.h"

#include <exception>
#include <new>
#include <utility>

#include <grpc/grpc.h>
#include <grpc/support/time.h>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "engine/support/error_detail.h"
#include "server/identity.h"
#include "server/status.h"

namespace tetrad {
namespace {

// A client that takes a large message slower than this stands still.
constexpr int64_t kLeastBytesPerSecond = 1 << 20;

std::string StalledText(const ServiceContext& service) {
  return absl::StrCat("progress_seconds: the client sent or took nothing for ",
                      service.config.progress_seconds, " s, the limit");
}

}  // namespace

Call::Call(const ServiceContext& service, Method method, grpc::CallbackServerContext& context)
    : service_(service),
      context_(context),
      method_(method),
      caller_(Admit()),
      began_(std::chrono::steady_clock::now()),
      progress_(absl::Seconds(service.config.progress_seconds), [this] {
        // Behind a full window of HTTP/2 a status of ours would wait like what is
        // there already; that of the library goes past it.
        ::grpc_call_cancel_with_status(context_.c_call(), GRPC_STATUS_DEADLINE_EXCEEDED,
                                       StalledText(service_).c_str(), nullptr);
      }) {
  service_.metrics.CallBegan(method_);
  if (!admission_.ok()) return;
  absl::StatusOr<CallGate::Pass> pass = service_.gate.Enter();
  admission_ = pass.status();
  if (pass.ok()) pass_ = *std::move(pass);
  if (admission_.ok()) admission_ = service_.client_calls.Enter(caller_.client, client_pass_);
}

Caller Call::Admit() {
  AccessTable::Verdict verdict =
      service_.access.Check(service_.identities, method_, context_, lasting_);
  admission_ = std::move(verdict.status);
  const Flow flow = {.id = absl::HashOf(verdict.client), .weight = verdict.weight};
  return {std::move(verdict.client), flow, service_.request_ids.Choose(context_),
          TraceContextOf(context_)};
}

Call::~Call() {
  if (!ClientMoved() && code_ == grpc::StatusCode::OK) (void)Stalled();  // over the reply
  const auto elapsed = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::steady_clock::now() - began_);
  service_.metrics.CallEnded(method_, code_, elapsed.count(), received_bytes_, sent_bytes_);
  if (!service_.log.Takes(LogLevel::kDebug)) return;
  service_.log.Write(LogLevel::kDebug, "call finished",
                     {{"method", MethodName(method_)},
                      {"client", caller_.client},
                      {"request", caller_.request},
                      {"trace_id", caller_.trace.trace_id},
                      {"span_id", caller_.trace.span_id},
                      {"tracestate", caller_.trace.tracestate},
                      {"code", CodeName(code_)},
                      {"milliseconds", static_cast<double>(elapsed.count()) / 1e6},
                      {"bytes_in", received_bytes_},
                      {"bytes_out", sent_bytes_}});
}

void Call::AwaitClient(int64_t bytes) {
  progress_.Wait(absl::Seconds(1) * (static_cast<double>(bytes) / kLeastBytesPerSecond));
}

void Call::AwaitReply(int64_t bytes) {
  AddSent(bytes);
  if (bytes > kCopyHereBytes) AwaitClient(bytes);
}

absl::Status Call::Stalled() {
  code_ = grpc::StatusCode::DEADLINE_EXCEEDED;
  service_.metrics.StreamStalled(method_);
  return StalledStatus();
}

absl::Status Call::StalledStatus() const {
  return ReasonError(Reason::kNoProgress, StalledText(service_));
}

grpc::Status Call::End(const absl::Status& status) {
  const absl::Status withdrawn = lasting_.ended();
  const absl::Status& why = withdrawn.ok() ? status : withdrawn;
  grpc::Status ended = ToGrpc(why);
  code_ = ended.error_code();
  Report(ended, DetailOf(why));
  if (failed_ || RequestIds::Offered(context_)) {
    context_.AddTrailingMetadata(kRequestIdKey, caller_.request);
  }
  if (caller_.trace.trace_id.has_value()) {
    context_.AddTrailingMetadata(kTraceparentKey, caller_.trace.traceparent());
  }
  return ended;
}

void Call::Report(const grpc::Status& status, const std::optional<ErrorDetail>& detail) {
  failed_ |= !status.ok();
  const grpc::StatusCode code = status.error_code();
  if (code == grpc::StatusCode::PERMISSION_DENIED || code == grpc::StatusCode::UNAUTHENTICATED) {
    service_.refusals.Note({.client = caller_.client,
                            .method = MethodName(method_),
                            .peer = context_.peer(),
                            .request = caller_.request,
                            .reason = detail.has_value() ? detail->reason : Reason::kNotYours});
  }
  if (code != grpc::StatusCode::INTERNAL && code != grpc::StatusCode::DATA_LOSS) return;
  service_.log.Error("call failed", {{"method", MethodName(method_)},
                                     {"client", caller_.client},
                                     {"request", caller_.request},
                                     {"trace_id", caller_.trace.trace_id},
                                     {"span_id", caller_.trace.span_id},
                                     {"code", CodeName(code)},
                                     {"error", status.error_message()}});
}

absl::Status Guarded(absl::FunctionRef<absl::Status()> body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return ReasonError(Reason::kHostMemory, "the daemon is out of host memory");
  } catch (const std::exception& error) {
    return ReasonError(Reason::kInternal, absl::StrCat("unexpected exception: ", error.what()));
  }
}

absl::Time ToTime(gpr_timespec deadline) {
  const gpr_timespec time = gpr_convert_clock_type(deadline, GPR_CLOCK_REALTIME);
  if (gpr_time_cmp(time, gpr_inf_future(GPR_CLOCK_REALTIME)) == 0) return absl::InfiniteFuture();
  return absl::FromUnixSeconds(time.tv_sec) + absl::Nanoseconds(time.tv_nsec);
}

absl::Status CancelledStatus(const grpc::CallbackServerContext& context) {
  return ToTime(context.raw_deadline()) <= absl::Now()
             ? ReasonError(Reason::kDeadline, "the deadline passed")
             : ReasonError(Reason::kCancelled, "the call was cancelled");
}

absl::Status TakeCallBytes(const ServiceContext& service, int64_t bytes) {
  if (service.call_bytes.Take(bytes)) return absl::OkStatus();
  if (bytes > service.call_bytes.limit_bytes()) {
    return ReasonError(Reason::kMessageTooLarge,
                       absl::StrCat("call_bytes: ", bytes, " bytes wanted, the limit is ",
                                    service.call_bytes.limit_bytes()));
  }
  return ReasonError(
      Reason::kCallBytes,
      absl::StrCat("call_bytes: ", bytes, " bytes wanted, requests and replies under way hold ",
                   service.call_bytes.used_bytes(), " of ", service.call_bytes.limit_bytes()));
}

absl::Status PoolFull(const WorkerPool& pool) {
  return ReasonError(
      Reason::kWorkersBusy,
      absl::StrCat(pool.capacity(), " calls wait for a worker thread already, the limit"));
}

}  // namespace tetrad
