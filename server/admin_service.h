// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// tetrad.v1.Admin: what an operator does to a running daemon. Each leaves a
// line in the log that says who did it.
#pragma once

#include <functional>

#include "tetrad/v1/admin.grpc.pb.h"

#include "server/attach_call.h"
#include "server/service_context.h"

namespace tetrad {

class AdminService final : public v1::Admin::CallbackService {
 public:
  // `drain` begins what SIGTERM begins; again, it does nothing.
  AdminService(const ServiceContext& service, Attachments& attachments, std::function<void()> drain)
      : service_(service), attachments_(attachments), drain_(std::move(drain)) {}

  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const v1::DrainRequest* request,
                                  v1::DrainResponse* response) override;
  grpc::ServerUnaryReactor* SetLogLevel(grpc::CallbackServerContext* context,
                                        const v1::SetLogLevelRequest* request,
                                        v1::SetLogLevelResponse* response) override;
  grpc::ServerUnaryReactor* EndLease(grpc::CallbackServerContext* context,
                                     const v1::EndLeaseRequest* request,
                                     v1::EndLeaseResponse* response) override;

 private:
  const ServiceContext& service_;
  Attachments& attachments_;
  const std::function<void()> drain_;
};

}  // namespace tetrad
