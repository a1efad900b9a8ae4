// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/admin_service.h"

#include <algorithm>
#include <optional>
#include <string>

#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"
#include "server/codec.h"
#include "server/unary_call.h"

namespace tetrad {

grpc::ServerUnaryReactor* AdminService::Drain(grpc::CallbackServerContext* context,
                                              const v1::DrainRequest* request,
                                              v1::DrainResponse* response) {
  return AnswerNow(
      service_, Method::kDrain, *context, {request, response},
      [this, response](const Caller& caller) {
        response->set_lame_duck_seconds(static_cast<double>(service_.config.lame_duck_seconds));
        response->set_drain_seconds(static_cast<double>(service_.config.drain_seconds));
        service_.log.Info("drain asked for",
                          {{"client", caller.client}, {"request", caller.request}});
        drain_();
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* AdminService::SetLogLevel(grpc::CallbackServerContext* context,
                                                    const v1::SetLogLevelRequest* request,
                                                    v1::SetLogLevelResponse* response) {
  return AnswerNow(service_, Method::kSetLogLevel, *context, {request, response},
                   [this, request, response](const Caller& caller) -> absl::Status {
                     const std::optional<LogLevel> level = ParseLogLevel(request->level());
                     if (!level.has_value()) {
                       return FieldError({.field = "level",
                                          .value = request->level(),
                                          .limit = "debug, info, warning or error"});
                     }
                     const LogLevel previous = service_.log.SetLevel(*level);
                     response->set_previous(std::string(LogLevelName(previous)));
                     // At a level that is written before or after.
                     service_.log.Write(std::max(*level, LogLevel::kInfo), "log level set",
                                        {{"client", caller.client},
                                         {"request", caller.request},
                                         {"level_set", LogLevelName(*level)},
                                         {"previous", LogLevelName(previous)}});
                     return absl::OkStatus();
                   });
}

grpc::ServerUnaryReactor* AdminService::EndLease(grpc::CallbackServerContext* context,
                                                 const v1::EndLeaseRequest* request,
                                                 v1::EndLeaseResponse* response) {
  return AnswerLater(
      service_, Method::kEndLease, *context, {request, response},
      [this, request, response](const Caller& caller) -> absl::Status {
        TETRAD_RETURN_IF_ERROR(ValidateReference("lease", request->lease()));
        TETRAD_ASSIGN_OR_RETURN(std::string owner, service_.engine.EndLease(request->lease()));
        attachments_.End(request->lease());
        service_.log.Info(
            "lease ended",
            {{"client", caller.client}, {"request", caller.request}, {"owner", owner}});
        response->set_client(std::move(owner));
        return absl::OkStatus();
      });
}

}  // namespace tetrad
