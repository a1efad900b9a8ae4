// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/memory_service.h"

#include <vector>

#include "engine/support/status_macros.h"
#include "server/block_read_call.h"
#include "server/block_write_call.h"
#include "server/codec.h"
#include "server/unary_call.h"

namespace tetrad {

grpc::ServerWriteReactor<v1::AttachEvent>* MemoryService::Attach(
    grpc::CallbackServerContext* context, const v1::AttachRequest* request) {
  return StartAttach(service_, attachments_, *context, *request);
}

grpc::ServerUnaryReactor* MemoryService::Detach(grpc::CallbackServerContext* context,
                                                const v1::DetachRequest* request,
                                                v1::DetachResponse* response) {
  return AnswerLater(service_, Method::kDetach, *context, {request, response},
                     [this, request](const std::string& client) -> absl::Status {
                       TETRAD_RETURN_IF_ERROR(ValidateReference("lease", request->lease()));
                       TETRAD_RETURN_IF_ERROR(service_.engine.EndLease(client, request->lease()));
                       attachments_.End(request->lease());
                       return absl::OkStatus();
                     });
}

grpc::ServerUnaryReactor* MemoryService::Allocate(grpc::CallbackServerContext* context,
                                                  const v1::AllocateRequest* request,
                                                  v1::AllocateResponse* response) {
  return AnswerLater(service_, Method::kAllocate, *context, {request, response},
                     [this, request, response](const std::string& client) -> absl::Status {
                       TETRAD_RETURN_IF_ERROR(ValidateReference("lease", request->lease()));
                       TETRAD_ASSIGN_OR_RETURN(
                           const BlockInfo block,
                           service_.engine.Allocate(client, request->lease(), request->bytes()));
                       ToProto(block, *response->mutable_block());
                       return absl::OkStatus();
                     });
}

grpc::ServerReadReactor<v1::WriteRequest>* MemoryService::Write(
    grpc::CallbackServerContext* context, v1::WriteResponse* response) {
  return StartBlockWrite(service_, *context, *response);
}

grpc::ServerUnaryReactor* MemoryService::GetWrite(grpc::CallbackServerContext* context,
                                                  const v1::GetWriteRequest* request,
                                                  v1::GetWriteResponse* response) {
  return AnswerNow(service_, Method::kGetWrite, *context, {request, response},
                   [this, request, response](const std::string& client) -> absl::Status {
                     TETRAD_RETURN_IF_ERROR(ValidateReference("block", request->block()));
                     TETRAD_RETURN_IF_ERROR(ValidateKey("write_key", request->write_key()));
                     TETRAD_ASSIGN_OR_RETURN(
                         const auto write, service_.engine.KeyedWriteOf(client, request->block()));
                     TETRAD_ASSIGN_OR_RETURN(const WriteProgress progress,
                                             write->Find(request->write_key()));
                     response->set_offset(progress.offset);
                     response->set_bytes(progress.bytes);
                     response->set_under_way(progress.under_way);
                     return absl::OkStatus();
                   });
}

grpc::ServerWriteReactor<v1::ReadResponse>* MemoryService::Read(
    grpc::CallbackServerContext* context, const v1::ReadRequest* request) {
  return StartBlockRead(service_, *context, *request);
}

grpc::ServerUnaryReactor* MemoryService::Free(grpc::CallbackServerContext* context,
                                              const v1::FreeRequest* request,
                                              v1::FreeResponse* response) {
  return AnswerLater(service_, Method::kFree, *context, {request, response},
                     [this, request](const std::string& client) -> absl::Status {
                       TETRAD_RETURN_IF_ERROR(ValidateReference("block", request->block()));
                       return service_.engine.Free(client, request->block());
                     });
}

grpc::ServerUnaryReactor* MemoryService::List(grpc::CallbackServerContext* context,
                                              const v1::ListBlocksRequest* request,
                                              v1::ListBlocksResponse* response) {
  return AnswerLater(service_, Method::kListBlocks, *context, {request, response},
                     [this, request, response](const std::string& client) -> absl::Status {
                       TETRAD_RETURN_IF_ERROR(ValidateReference("lease", request->lease()));
                       TETRAD_ASSIGN_OR_RETURN(
                           const std::vector<BlockInfo> blocks,
                           service_.engine.ListBlocks(client, request->lease()));
                       for (const BlockInfo& block : blocks) {
                         ToProto(block, *response->add_blocks());
                       }
                       return absl::OkStatus();
                     });
}

}  // namespace tetrad
