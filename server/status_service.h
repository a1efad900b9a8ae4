// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// tetrad.v1.Status: what the daemon is and how full it is.
#pragma once

#include "tetrad/v1/status.grpc.pb.h"

#include "server/service_context.h"
#include "server/tickets.h"

namespace tetrad {

class StatusService final : public v1::Status::CallbackService {
 public:
  StatusService(const ServiceContext& service, const Tickets& tickets)
      : service_(service), tickets_(tickets) {}
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::GetStatusResponse* response) override;

 private:
  const ServiceContext& service_;
  const Tickets& tickets_;
};

}  // namespace tetrad
