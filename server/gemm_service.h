// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// tetrad.v1.Gemm: plans and their execution, tickets.
#pragma once

#include "tetrad/v1/gemm.grpc.pb.h"

#include "server/execute_messages.h"
#include "server/service_context.h"
#include "server/tickets.h"

namespace tetrad {

// Wait takes and gives bytes, so that its replies can refer to outcomes.
class GemmService final : public v1::Gemm::WithRawCallbackMethod_Wait<v1::Gemm::CallbackService> {
 public:
  GemmService(const ServiceContext& service, Tickets& tickets)
      : service_(service), tickets_(tickets) {
    SetMessageAllocatorFor_Execute(&messages_);
  }
  grpc::ServerUnaryReactor* Prepare(grpc::CallbackServerContext* context,
                                    const v1::PrepareRequest* request,
                                    v1::PrepareResponse* response) override;
  grpc::ServerUnaryReactor* Execute(grpc::CallbackServerContext* context,
                                    const v1::ExecuteRequest* request,
                                    v1::ExecuteResponse* response) override;
  grpc::ServerBidiReactor<v1::ExecuteStreamRequest, v1::ExecuteStreamResponse>* ExecuteStream(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* Release(grpc::CallbackServerContext* context,
                                    const v1::ReleaseRequest* request,
                                    v1::ReleaseResponse* response) override;
  grpc::ServerUnaryReactor* Submit(grpc::CallbackServerContext* context,
                                   const v1::SubmitRequest* request,
                                   v1::SubmitResponse* response) override;
  grpc::ServerUnaryReactor* Wait(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<v1::TicketEvent>* Watch(grpc::CallbackServerContext* context,
                                                   const v1::WatchRequest* request) override;
  grpc::ServerUnaryReactor* Cancel(grpc::CallbackServerContext* context,
                                   const v1::CancelRequest* request,
                                   v1::CancelResponse* response) override;

 private:
  const ServiceContext& service_;
  Tickets& tickets_;
  ExecuteMessages messages_;
};

}  // namespace tetrad
