// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// tetrad.v1.Status: what the daemon is and how full it is.
#pragma once

#include "tetrad/v1/status.grpc.pb.h"

#include "server/service_context.h"

namespace tetrad {

class StatusService final : public v1::Status::CallbackService {
 public:
  explicit StatusService(const ServiceContext& service) : service_(service) {}
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::GetStatusResponse* response) override;

 private:
  const ServiceContext& service_;
};

}  // namespace tetrad
