// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "absl/time/clock.h"

#include "clients/cpp/client.h"
#include "clients/cpp/connection.h"

namespace tetrad {

absl::StatusOr<v1::SubmitResponse> Client::Submit(const v1::SubmitRequest& request,
                                                  const CallOptions& call) {
  const Rpc rpc = request.idempotency_key().empty() ? Rpc::kSubmit : Rpc::kSubmitWithKey;
  return connection_->Unary(rpc, connection_->gemm, &v1::Gemm::Stub::Submit, request, call);
}

absl::StatusOr<v1::WaitResponse> Client::Wait(const v1::WaitRequest& request,
                                              const CallOptions& call) {
  // The time to wait may be for ever; a call's may not.
  const absl::Duration wait =
      std::min(absl::Seconds(request.timeout_seconds()), connection_->options.transfer_deadline);
  const absl::Duration longer =
      connection_->options.deadline + std::max(wait, absl::ZeroDuration());
  const absl::Time began = absl::Now();
  v1::WaitRequest asked = request;
  absl::StatusOr<v1::WaitResponse> response = v1::WaitResponse();
  const absl::Status status = connection_->Repeated(
      request.forget() ? Rpc::kWaitAndForget : Rpc::kWait, call, longer,
      [&](absl::Time deadline) -> Attempted {
        OutgoingCall attempt(call, deadline, *connection_->token);
        const absl::Status ended =
            FromGrpcStatus(connection_->gemm.Wait(attempt.context(), asked, &*response));
        // Should this be repeated, what has been waited counts.
        if (request.timeout_seconds() > 0) {
          const double waited = absl::ToDoubleSeconds(absl::Now() - began);
          asked.set_timeout_seconds(std::max(request.timeout_seconds() - waited, 0.0));
        }
        return {ended};
      });
  if (!status.ok()) response = status;
  return response;
}

absl::Status Client::Watch(std::span<const std::string> tickets,
                           const std::function<void(const v1::TicketEvent&)>& tell,
                           const CallOptions& options) {
  std::vector<std::string> left(tickets.begin(), tickets.end());
  return connection_->Repeated(
      Rpc::kWatch, options, connection_->options.transfer_deadline,
      [&](absl::Time deadline) -> Attempted {
        OutgoingCall call(options, deadline, *connection_->token);
        v1::WatchRequest request;
        for (const std::string& ticket : left) request.add_tickets(ticket);
        const auto reader = connection_->gemm.Watch(call.context(), request);
        v1::TicketEvent event;
        while (reader->Read(&event)) {
          std::erase(left, event.ticket());  // told of once, however often this is repeated
          tell(event);
        }
        return {.status = FromGrpcStatus(reader->Finish()),
                .last = left.empty()};  // there is nothing left to ask for
      });
}

absl::StatusOr<bool> Client::Cancel(const std::string& ticket, const CallOptions& call) {
  v1::CancelRequest request;
  request.set_ticket(ticket);
  const auto response =
      connection_->Unary(Rpc::kCancel, connection_->gemm, &v1::Gemm::Stub::Cancel, request, call);
  if (!response.ok()) return response.status();
  return response->cancelled();
}

}  // namespace tetrad
