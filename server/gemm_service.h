// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// tetrad.v1.Gemm: plans and their execution.
#pragma once

#include "tetrad/v1/gemm.grpc.pb.h"

#include "server/execute_messages.h"
#include "server/service_context.h"

namespace tetrad {

class GemmService final : public v1::Gemm::CallbackService {
 public:
  explicit GemmService(const ServiceContext& service) : service_(service) {
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

 private:
  const ServiceContext& service_;
  ExecuteMessages messages_;
};

}  // namespace tetrad
