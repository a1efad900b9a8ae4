// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/gemm_service.h"

#include "engine/support/status_macros.h"
#include "server/codec.h"
#include "server/execute_call.h"
#include "server/execute_stream.h"
#include "server/submit_call.h"
#include "server/unary_call.h"
#include "server/wait_call.h"
#include "server/watch_call.h"

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

grpc::ServerUnaryReactor* GemmService::Submit(grpc::CallbackServerContext* context,
                                              const v1::SubmitRequest* request,
                                              v1::SubmitResponse* response) {
  // The library made it for this call, and looks at it no more: taking its
  // operands over saves a copy of them.
  return StartSubmit(service_, tickets_, *context, const_cast<v1::SubmitRequest&>(*request),
                     *response);
}

grpc::ServerUnaryReactor* GemmService::Wait(grpc::CallbackServerContext* context,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* response) {
  return StartWait(service_, tickets_, *context, *request, *response);
}

grpc::ServerWriteReactor<v1::TicketEvent>* GemmService::Watch(grpc::CallbackServerContext* context,
                                                              const v1::WatchRequest* request) {
  return StartWatch(service_, tickets_, *context, *request);
}

grpc::ServerUnaryReactor* GemmService::Cancel(grpc::CallbackServerContext* context,
                                              const v1::CancelRequest* request,
                                              v1::CancelResponse* response) {
  return AnswerNow(service_, Method::kCancel, *context, {request, response},
                   [this, request, response](const std::string& client) -> absl::Status {
                     TETRAD_ASSIGN_OR_RETURN(const bool cancelled,
                                             tickets_.Cancel(client, request->ticket()));
                     response->set_cancelled(cancelled);
                     return absl::OkStatus();
                   });
}

}  // namespace tetrad
