// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// tetrad.v1.Weights: registers, lists and drops weights.
#pragma once

#include "tetrad/v1/weights.grpc.pb.h"

#include "server/open_uploads.h"
#include "server/service_context.h"
#include "server/step_alarm.h"

namespace tetrad {

class WeightsService final : public v1::Weights::CallbackService {
 public:
  explicit WeightsService(const ServiceContext& service);
  grpc::ServerReadReactor<v1::UploadRequest>* Upload(grpc::CallbackServerContext* context,
                                                     v1::UploadResponse* response) override;
  grpc::ServerUnaryReactor* GetUpload(grpc::CallbackServerContext* context,
                                      const v1::GetUploadRequest* request,
                                      v1::GetUploadResponse* response) override;
  grpc::ServerWriteReactor<v1::LoadProgress>* Load(grpc::CallbackServerContext* context,
                                                   const v1::LoadRequest* request) override;
  grpc::ServerUnaryReactor* Seal(grpc::CallbackServerContext* context,
                                 const v1::SealRequest* request,
                                 v1::SealResponse* response) override;
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context,
                                 const v1::ListWeightsRequest* request,
                                 v1::ListWeightsResponse* response) override;
  grpc::ServerUnaryReactor* Drop(grpc::CallbackServerContext* context,
                                 const v1::DropRequest* request,
                                 v1::DropResponse* response) override;

 private:
  const ServiceContext& service_;
  OpenUploads uploads_;
  StepAlarm expiry_;  // of uploads_; goes first
};

}  // namespace tetrad
