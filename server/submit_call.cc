// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/submit_call.h"

#include <utility>

#include "server/call.h"

namespace tetrad {
namespace {

class SubmitCall final : public grpc::ServerUnaryReactor {
 public:
  SubmitCall(const ServiceContext& service, Tickets& tickets, grpc::CallbackServerContext& context,
             v1::SubmitRequest& request, v1::SubmitResponse& response)
      : service_(service),
        tickets_(tickets),
        context_(context),
        request_(request),
        response_(response),
        call_(service, Method::kSubmit, context) {}

  void Start() {
    const auto bytes = static_cast<int64_t>(request_.ByteSizeLong());
    call_.AddReceived(bytes);
    if (!call_.admission().ok()) return Finish(call_.End(call_.admission()));
    // The digest of a large one is not for this thread.
    if (request_.idempotency_key().empty() || bytes <= kCopyHereBytes) {
      number_ = Submit();
      return;
    }
    // What waits for the thread is counted too; from then on its execution does.
    if (const absl::Status taken = TakeCallBytes(service_, bytes); !taken.ok()) {
      return Finish(call_.End(taken));
    }
    const bool posted = service_.work.Post([this, bytes] {
      service_.call_bytes.Give(bytes);
      Submit();
    });
    if (posted) return;
    service_.call_bytes.Give(bytes);
    Finish(call_.End(PoolFull(service_.work)));
  }
  // Comes after Start() only, and number_ is that of one without a key.
  void OnCancel() override {
    if (number_ != TicketNumber::kNone) tickets_.Abandon(number_, CancelledStatus(context_));
  }
  void OnDone() override { delete this; }

 private:
  // The call may be gone when this returns, unless Start() still runs.
  TicketNumber Submit() {
    const bool has_key = !request_.idempotency_key().empty();
    const TicketNumber number = tickets_.Submit(
        call_.caller(), std::move(request_),
        [this](const absl::StatusOr<TicketTable::Admission>& admission) { Answer(admission); });
    return has_key ? TicketNumber::kNone : number;
  }
  void Answer(const absl::StatusOr<TicketTable::Admission>& admission) {
    if (admission.ok()) {
      response_.set_ticket(admission->ticket);
      response_.set_repeated(admission->repeated);
      call_.AddSent(static_cast<int64_t>(response_.ByteSizeLong()));
    }
    Finish(call_.End(admission.status()));
  }

  const ServiceContext& service_;
  Tickets& tickets_;
  const grpc::CallbackServerContext& context_;
  v1::SubmitRequest& request_;
  v1::SubmitResponse& response_;
  Call call_;
  TicketNumber number_ = TicketNumber::kNone;
};

}  // namespace

grpc::ServerUnaryReactor* StartSubmit(const ServiceContext& service, Tickets& tickets,
                                      grpc::CallbackServerContext& context,
                                      v1::SubmitRequest& request, v1::SubmitResponse& response) {
  auto* call = new SubmitCall(service, tickets, context, request, response);
  call->Start();
  return call;
}

}  // namespace tetrad
