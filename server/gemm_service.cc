// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/gemm_service.h"

#include "engine/support/status_macros.h"
#include "server/codec.h"
#include "server/execute_call.h"
#include "server/execute_stream.h"
#include "server/unary_call.h"

namespace tetrad {

grpc::ServerUnaryReactor* GemmService::Prepare(grpc::CallbackServerContext* context,
                                               const v1::PrepareRequest* request,
                                               v1::PrepareResponse* response) {
  return AnswerLater(
      service_, Method::kPrepare, *context, {request, response},
      [this, request, response](const std::string& client) -> absl::Status {
        TETRAD_ASSIGN_OR_RETURN(const SignatureRequest signature, FromProto(request->signature()));
        if (!request->lease().empty()) {
          TETRAD_RETURN_IF_ERROR(ValidateReference("lease", request->lease()));
        }
        TETRAD_ASSIGN_OR_RETURN(const PreparedPlan prepared,
                                service_.engine.Prepare(client, signature, request->lease()));
        ToProto(prepared, *response);
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* GemmService::Execute(grpc::CallbackServerContext* context,
                                               const v1::ExecuteRequest* request,
                                               v1::ExecuteResponse* response) {
  return StartExecute(service_, *context, *request, *response);
}

grpc::ServerBidiReactor<v1::ExecuteStreamRequest, v1::ExecuteStreamResponse>*
GemmService::ExecuteStream(grpc::CallbackServerContext* context) {
  return StartExecuteStream(service_, *context);
}

grpc::ServerUnaryReactor* GemmService::Release(grpc::CallbackServerContext* context,
                                               const v1::ReleaseRequest* request,
                                               v1::ReleaseResponse* response) {
  return AnswerNow(service_, Method::kRelease, *context, {request, response},
                   [this, request](const std::string& client) -> absl::Status {
                     TETRAD_RETURN_IF_ERROR(ValidateReference("plan", request->plan()));
                     return service_.engine.Release(client, request->plan());
                   });
}

}  // namespace tetrad
