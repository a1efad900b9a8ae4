// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/execute_call.h"

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/steady_clock.h"
#include "engine/support/status_macros.h"
#include "server/call.h"
#include "server/codec.h"

namespace tetrad {
namespace {

// Operands up to this size are copied on the RPC library's thread: a change of
// thread would cost more than the copy.
constexpr size_t kCopyHereBytes = 64 << 10;

using Result = absl::StatusOr<Executed>;

class ExecuteCall final : public grpc::ServerUnaryReactor {
 public:
  ExecuteCall(const ServiceContext& service, grpc::CallbackServerContext& context,
              const v1::ExecuteRequest& request, v1::ExecuteResponse& response)
      : service_(service),
        context_(context),
        request_(request),
        response_(response),
        call_(service, Method::kExecute, context) {
    call_.AddReceived(static_cast<int64_t>(request_.ByteSizeLong()));
  }

  void Start();
  void OnCancel() override;
  void OnDone() override {
    service_.call_bytes.Give(taken_bytes_);
    delete this;
  }

 private:
  enum class Phase { kSubmitting, kRunning, kReplying, kEnded };

  // What the engine's callback may touch after the call itself is gone.
  struct Link {
    std::mutex mutex;
    Phase phase = Phase::kSubmitting;  // guarded by mutex
    bool cancelled = false;            // guarded by mutex
    ExecutionId execution{};           // guarded by mutex
    std::optional<Result> early;       // came while submitting; guarded by mutex
    ExecuteCall* call = nullptr;       // valid while phase is not kEnded
  };

  bool small() const {
    const v1::InlineOperands& operands = request_.inline_operands();
    return request_.has_plan() &&
           operands.activations().size() + operands.activation_scales().size() <= kCopyHereBytes;
  }
  // Of the budget, until the reply has left the daemon: a client that does not
  // read keeps what it asked for, and no more than that.
  absl::Status TakeBytes(int64_t bytes);
  void Submit();
  absl::Status Hand(Engine& engine, ExecutionId* execution);
  static void Completed(const std::shared_ptr<Link>& link, Result result);
  void Reply(Result result);
  absl::Status Fill(const Executed& executed);
  void End(const absl::Status& status) { Finish(call_.End(status)); }

  const ServiceContext& service_;
  const grpc::CallbackServerContext& context_;
  const v1::ExecuteRequest& request_;
  v1::ExecuteResponse& response_;
  Call call_;
  int64_t taken_bytes_ = 0;
  const std::shared_ptr<Link> link_ = std::make_shared<Link>();
};

absl::Status ExecuteCall::TakeBytes(int64_t bytes) {
  if (!service_.call_bytes.Take(bytes)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("call_bytes: ", bytes, " bytes wanted, requests and replies under way hold ",
                     service_.call_bytes.used_bytes(), " of ", service_.call_bytes.limit_bytes()));
  }
  taken_bytes_ += bytes;
  return absl::OkStatus();
}

void ExecuteCall::Start() {
  link_->call = this;
  absl::Status admission = call_.admission();
  if (admission.ok()) admission = TakeBytes(static_cast<int64_t>(request_.ByteSizeLong()));
  if (!admission.ok()) {
    link_->phase = Phase::kEnded;
    End(admission);
  } else if (small()) {
    Submit();
  } else if (!service_.work.Post([this] { Submit(); })) {
    link_->phase = Phase::kEnded;
    End(PoolFull(service_.work));
  }
}

absl::Status ExecuteCall::Hand(Engine& engine, ExecutionId* execution) {
  ExecuteRequest request;
  std::optional<SignatureRequest> signature;
  request.client = call_.client();
  switch (request_.plan_or_signature_case()) {
    case v1::ExecuteRequest::kPlan:
      TETRAD_RETURN_IF_ERROR(ValidateReference("plan", request_.plan()));
      request.plan = request_.plan();
      break;
    case v1::ExecuteRequest::kSignature: {
      TETRAD_ASSIGN_OR_RETURN(signature, FromProto(request_.signature()));
      request.signature = &*signature;
      break;
    }
    case v1::ExecuteRequest::PLAN_OR_SIGNATURE_NOT_SET:
      return absl::InvalidArgumentError("one of `plan` and `signature` must be set");
  }
  if (!request_.weights().empty()) {
    TETRAD_RETURN_IF_ERROR(ValidateReference("weights", request_.weights()));
    request.weights = request_.weights();
  }
  request.operands = FromProto(request_.inline_operands());
  request.deadline = SteadyInstant(ToTime(context_.raw_deadline()));
  *execution = engine.Execute(
      request, [link = link_](Result result) { Completed(link, std::move(result)); });
  return absl::OkStatus();
}

void ExecuteCall::Submit() {
  const std::shared_ptr<Link> link = link_;
  Engine& engine = service_.engine;
  {
    std::lock_guard lock(link->mutex);
    if (link->cancelled) link->early = CancelledStatus(context_);
  }
  ExecutionId execution{};
  if (!link->early.has_value()) {
    const absl::Status status = Guarded([&] { return Hand(engine, &execution); });
    if (!status.ok()) Completed(link, status);
  }
  bool cancel = false;
  {
    std::lock_guard lock(link->mutex);
    link->execution = execution;
    cancel = link->cancelled && !link->early.has_value();
    link->phase = cancel                    ? Phase::kEnded
                  : link->early.has_value() ? Phase::kReplying
                                            : Phase::kRunning;
    // From here on a running call may end, and be gone, at any moment.
    if (link->phase == Phase::kRunning) return;
  }
  if (cancel) {
    engine.Cancel(execution);
    End(CancelledStatus(context_));
  } else {
    Reply(*std::move(link->early));
  }
}

void ExecuteCall::Completed(const std::shared_ptr<Link>& link, Result result) {
  {
    std::lock_guard lock(link->mutex);
    if (link->phase == Phase::kSubmitting) {
      link->early = std::move(result);
      return;
    }
    if (link->phase != Phase::kRunning) return;
    link->phase = Phase::kReplying;
  }
  ExecuteCall* const call = link->call;
  auto held = std::make_shared<Result>(std::move(result));
  if (!call->service_.replies.Post([call, held] { call->Reply(std::move(*held)); })) {
    call->End(PoolFull(call->service_.replies));
  }
}

void ExecuteCall::OnCancel() {
  Engine& engine = service_.engine;
  ExecutionId execution{};
  {
    std::lock_guard lock(link_->mutex);
    link_->cancelled = true;
    if (link_->phase != Phase::kRunning) return;
    link_->phase = Phase::kEnded;
    execution = link_->execution;
  }
  engine.Cancel(execution);
  End(CancelledStatus(context_));
}

absl::Status ExecuteCall::Fill(const Executed& executed) {
  // Once in the response and once as the RPC library sends it.
  TETRAD_RETURN_IF_ERROR(TakeBytes(2 * executed.output_bytes()));
  std::string& output = *response_.mutable_output();
  output.resize(static_cast<size_t>(executed.output_bytes()));
  TETRAD_RETURN_IF_ERROR(executed.CopyOutput(std::as_writable_bytes(std::span(output))));
  ToProto(executed.timings(), executed.share(), *response_.mutable_timings());
  response_.set_weights(executed.weights());
  response_.set_kernel(executed.plan().kernel);
  response_.set_floor_us(executed.plan().floor.floor_us());
  return absl::OkStatus();
}

void ExecuteCall::Reply(Result result) {
  absl::Status status = result.status();
  if (status.ok()) {
    service_.metrics.Executed(result->timings(), result->plan().floor.floor_us(),
                              result->weights());
    status = Guarded([&] { return Fill(*result); });
  }
  // The staging memory is free for the next request before this one's reply is
  // on its way.
  result = absl::CancelledError();
  if (status.ok()) {
    call_.AddSent(static_cast<int64_t>(response_.ByteSizeLong()));
  } else {
    response_.Clear();
  }
  End(status);
}

}  // namespace

grpc::ServerUnaryReactor* StartExecute(const ServiceContext& service,
                                       grpc::CallbackServerContext& context,
                                       const v1::ExecuteRequest& request,
                                       v1::ExecuteResponse& response) {
  auto* call = new ExecuteCall(service, context, request, response);
  call->Start();
  return call;
}

}  // namespace tetrad
