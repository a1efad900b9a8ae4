// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/weights_service.h"

#include "absl/strings/str_cat.h"

#include "engine/steady_clock.h"
#include "engine/support/status_macros.h"
#include "server/codec.h"
#include "server/load_call.h"
#include "server/unary_call.h"
#include "server/upload_call.h"

namespace tetrad {

WeightsService::WeightsService(const ServiceContext& service)
    : service_(service),
      uploads_(service.engine.weights(),
               {.keep = absl::Seconds(service.config.upload_keep_seconds)}),
      expiry_([this] { return uploads_.Step(SteadyNow()); }) {}

grpc::ServerReadReactor<v1::UploadRequest>* WeightsService::Upload(
    grpc::CallbackServerContext* context, v1::UploadResponse* response) {
  return StartUpload(service_, uploads_, expiry_, *context, *response);
}

grpc::ServerUnaryReactor* WeightsService::GetUpload(grpc::CallbackServerContext* context,
                                                    const v1::GetUploadRequest* request,
                                                    v1::GetUploadResponse* response) {
  return AnswerLater(service_, Method::kGetUpload, *context, {request, response},
                     [this, request, response](const std::string& client) -> absl::Status {
                       TETRAD_RETURN_IF_ERROR(ValidateReference("name", request->name()));
                       TETRAD_RETURN_IF_ERROR(ValidateKey("upload_key", request->upload_key()));
                       TETRAD_ASSIGN_OR_RETURN(*response,
                                               uploads_.Get({.client = client,
                                                             .name = request->name(),
                                                             .key = request->upload_key()}));
                       return absl::OkStatus();
                     });
}

grpc::ServerWriteReactor<v1::LoadProgress>* WeightsService::Load(
    grpc::CallbackServerContext* context, const v1::LoadRequest* request) {
  return StartLoad(service_, *context, *request);
}

grpc::ServerUnaryReactor* WeightsService::Seal(grpc::CallbackServerContext* context,
                                               const v1::SealRequest* request,
                                               v1::SealResponse* response) {
  return AnswerLater(service_, Method::kSeal, *context, {request, response},
                     [this, request, response](const Caller& caller) -> absl::Status {
                       TETRAD_RETURN_IF_ERROR(ValidateReference("name", request->name()));
                       TETRAD_ASSIGN_OR_RETURN(
                           const WeightsInfo info,
                           service_.engine.weights().Seal(request->name(), request->version()));
                       ToProto(info, *response->mutable_weights());
                       service_.log.Info("weights sealed", {{"client", caller.client},
                                                            {"request", caller.request},
                                                            {"trace_id", caller.trace.trace_id},
                                                            {"span_id", caller.trace.span_id},
                                                            {"name", info.spec.name},
                                                            {"version", info.version}});
                       return absl::OkStatus();
                     });
}

grpc::ServerUnaryReactor* WeightsService::List(grpc::CallbackServerContext* context,
                                               const v1::ListWeightsRequest* request,
                                               v1::ListWeightsResponse* response) {
  return AnswerLater(service_, Method::kList, *context, {request, response},
                     [this, response](const std::string&) {
                       for (const WeightsInfo& info : service_.engine.weights().List()) {
                         ToProto(info, *response->add_weights());
                       }
                       return absl::OkStatus();
                     });
}

grpc::ServerUnaryReactor* WeightsService::Drop(grpc::CallbackServerContext* context,
                                               const v1::DropRequest* request,
                                               v1::DropResponse* response) {
  return AnswerLater(service_, Method::kDrop, *context, {request, response},
                     [this, request, response](const Caller& caller) -> absl::Status {
                       TETRAD_RETURN_IF_ERROR(ValidateReference("weights", request->weights()));
                       TETRAD_ASSIGN_OR_RETURN(const int dropped,
                                               service_.engine.weights().Drop(request->weights()));
                       response->set_dropped(dropped);
                       const std::string name =
                           request->weights().substr(0, request->weights().find('@'));
                       if (absl::IsNotFound(service_.engine.weights().Resolve(name).status())) {
                         service_.metrics.WeightsGone(name);
                       }
                       service_.log.Info("weights dropped", {{"client", caller.client},
                                                             {"request", caller.request},
                                                             {"trace_id", caller.trace.trace_id},
                                                             {"span_id", caller.trace.span_id},
                                                             {"weights", request->weights()},
                                                             {"versions", dropped}});
                       return absl::OkStatus();
                     });
}

}  // namespace tetrad
