// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// tetrad.v1.Memory: leases, and the blocks of device memory that belong to them.
#pragma once

#include "tetrad/v1/memory.grpc.pb.h"

#include "server/attach_call.h"
#include "server/service_context.h"

namespace tetrad {

class MemoryService final : public v1::Memory::CallbackService {
 public:
  explicit MemoryService(const ServiceContext& service) : service_(service) {}
  grpc::ServerWriteReactor<v1::AttachEvent>* Attach(grpc::CallbackServerContext* context,
                                                    const v1::AttachRequest* request) override;
  grpc::ServerUnaryReactor* Detach(grpc::CallbackServerContext* context,
                                   const v1::DetachRequest* request,
                                   v1::DetachResponse* response) override;
  grpc::ServerUnaryReactor* Allocate(grpc::CallbackServerContext* context,
                                     const v1::AllocateRequest* request,
                                     v1::AllocateResponse* response) override;
  grpc::ServerReadReactor<v1::WriteRequest>* Write(grpc::CallbackServerContext* context,
                                                   v1::WriteResponse* response) override;
  grpc::ServerUnaryReactor* GetWrite(grpc::CallbackServerContext* context,
                                     const v1::GetWriteRequest* request,
                                     v1::GetWriteResponse* response) override;
  grpc::ServerWriteReactor<v1::ReadResponse>* Read(grpc::CallbackServerContext* context,
                                                   const v1::ReadRequest* request) override;
  grpc::ServerUnaryReactor* Free(grpc::CallbackServerContext* context,
                                 const v1::FreeRequest* request,
                                 v1::FreeResponse* response) override;
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context,
                                 const v1::ListBlocksRequest* request,
                                 v1::ListBlocksResponse* response) override;

  Attachments& attachments() { return attachments_; }

 private:
  const ServiceContext& service_;
  Attachments attachments_;
};

}  // namespace tetrad
