// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/wait_call.h"

#include <grpcpp/impl/codegen/proto_utils.h>

#include "tetrad/v1/gemm.pb.h"

#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"
#include "server/call.h"

namespace tetrad {
namespace {

// The reply of the outcome, which lives as long as the network refers to it.
grpc::ByteBuffer Share(const TicketOutcomePtr& outcome) {
  auto* const held = new TicketOutcomePtr(outcome);
  const std::string& reply = outcome->reply;
  // The library's slices are not const; it does not write to those it sends.
  const grpc::Slice slice(
      const_cast<char*>(reply.data()), reply.size(),
      [](void* last) { delete static_cast<TicketOutcomePtr*>(last); }, held);
  return grpc::ByteBuffer(&slice, 1);
}

class WaitCall final : public grpc::ServerUnaryReactor {
 public:
  WaitCall(const ServiceContext& service, Tickets& tickets, grpc::CallbackServerContext& context,
           grpc::ByteBuffer& response)
      : tickets_(tickets),
        context_(context),
        response_(response),
        call_(service, Method::kWait, context) {}

  void Start(const grpc::ByteBuffer& request) {
    call_.AddReceived(static_cast<int64_t>(request.Length()));
    absl::Status status = call_.admission();
    if (status.ok()) status = Guarded([&] { return Wait(request); });
    if (!status.ok()) Finish(call_.End(status));
  }

  // Comes after Start() only.
  void OnCancel() override {
    if (tickets_.StopWaiting(waiter_)) Finish(call_.End(CancelledStatus(context_)));
  }
  void OnDone() override {
    if (answered_ && forget_ && !context_.IsCancelled()) {
      tickets_.Forget(call_.client(), ticket_);
    }
    delete this;
  }

 private:
  absl::Status Wait(const grpc::ByteBuffer& request) {
    grpc::ByteBuffer bytes(request);
    v1::WaitRequest message;  // what it may have besides is not kept while this waits
    if (!grpc::SerializationTraits<v1::WaitRequest>::Deserialize(&bytes, &message).ok()) {
      return ReasonError(Reason::kFieldMalformed, "the message is no WaitRequest");
    }
    TETRAD_RETURN_IF_ERROR(CheckSeconds("timeout_seconds", message.timeout_seconds()));
    ticket_ = message.ticket();
    forget_ = message.forget();
    // Once it waits, the answer may come before this returns. The call is kept
    // until Start() is over.
    TETRAD_ASSIGN_OR_RETURN(
        waiter_, tickets_.Wait(call_.client(), ticket_, absl::Seconds(message.timeout_seconds()),
                               [this](TicketTable::Wake wake, const TicketOutcomePtr& outcome) {
                                 Answer(wake, outcome);
                               }));
    return absl::OkStatus();
  }

  void Answer(TicketTable::Wake wake, const TicketOutcomePtr& outcome) {
    if (wake == TicketTable::Wake::kClosed) {
      return Finish(call_.End(
          ReasonError(Reason::kDraining, "the daemon is shutting down; the ticket is not done")));
    }
    // An empty message says that it is not done.
    response_ = grpc::ByteBuffer();
    if (wake == TicketTable::Wake::kDone) {
      response_ = Share(outcome);
      answered_ = true;
    } else {
      const grpc::Slice nothing;
      response_ = grpc::ByteBuffer(&nothing, 1);
    }
    call_.AwaitReply(static_cast<int64_t>(response_.Length()));
    const grpc::Status ended = call_.End(absl::OkStatus());
    answered_ &= ended.ok();  // the credential may be withdrawn
    Finish(ended);
  }

  Tickets& tickets_;
  const grpc::CallbackServerContext& context_;
  grpc::ByteBuffer& response_;
  Call call_;
  std::string ticket_;
  bool forget_ = false;
  WaiterId waiter_ = WaiterId::kNone;
  bool answered_ = false;  // with an outcome
};

}  // namespace

grpc::ServerUnaryReactor* StartWait(const ServiceContext& service, Tickets& tickets,
                                    grpc::CallbackServerContext& context,
                                    const grpc::ByteBuffer& request, grpc::ByteBuffer& response) {
  auto* call = new WaitCall(service, tickets, context, response);
  call->Start(request);
  return call;
}

}  // namespace tetrad
