// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// FakeDaemon: the services of a daemon in this process, for tests of the
// command line. It computes with the FP64 reference, which is right for exact
// data and within every bound for other data, and can be told to be wrong in
// one of the ways verification exists to notice. Listens on a Unix socket in a
// folder of its own. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "absl/status/statusor.h"
#include "tetrad/v1/admin.grpc.pb.h"
#include "tetrad/v1/gemm.grpc.pb.h"
#include "tetrad/v1/status.grpc.pb.h"
#include "tetrad/v1/weights.grpc.pb.h"

#include "clients/cli/grouped_case.h"

namespace tetrad::cli {

enum class Fault {
  kNone,
  kWrongElement,       // one bit of one element in the middle
  kLastColumnDropped,  // of the last group: left zero
  kLastGroupDropped,
  kGapWritten,  // a byte between rows or beyond the live ones
  kShortReply,
  kOtherBytesNextTime,
  kWrongSizes,  // the plan asks for other sizes
  kPrepareRefused,
  kExecuteFails,  // INTERNAL
  kDraining,      // UNAVAILABLE
  kHangs,         // until cancelled
};

class FakeDaemon final : public v1::Status::Service,
                         public v1::Weights::Service,
                         public v1::Gemm::Service,
                         public v1::Admin::Service {
 public:
  explicit FakeDaemon(Fault fault = Fault::kNone);
  ~FakeDaemon() override;

  const std::string& endpoint() const { return endpoint_; }
  std::vector<std::string> weights() const;  // names held now
  int executions() const;
  int plans_held() const;
  // Of the last GetStatus; empty if it came without.
  std::string last_metadata(const std::string& key) const;

  grpc::Status GetStatus(grpc::ServerContext* context, const v1::GetStatusRequest*,
                         v1::GetStatusResponse* response) override;
  grpc::Status Upload(grpc::ServerContext*, grpc::ServerReader<v1::UploadRequest>* reader,
                      v1::UploadResponse* response) override;
  grpc::Status Load(grpc::ServerContext*, const v1::LoadRequest* request,
                    grpc::ServerWriter<v1::LoadProgress>* writer) override;
  grpc::Status List(grpc::ServerContext*, const v1::ListWeightsRequest*,
                    v1::ListWeightsResponse* response) override;
  grpc::Status Seal(grpc::ServerContext*, const v1::SealRequest* request,
                    v1::SealResponse* response) override;
  grpc::Status Drop(grpc::ServerContext*, const v1::DropRequest* request,
                    v1::DropResponse* response) override;
  grpc::Status Prepare(grpc::ServerContext*, const v1::PrepareRequest* request,
                       v1::PrepareResponse* response) override;
  grpc::Status Execute(grpc::ServerContext* context, const v1::ExecuteRequest* request,
                       v1::ExecuteResponse* response) override;
  grpc::Status Release(grpc::ServerContext*, const v1::ReleaseRequest* request,
                       v1::ReleaseResponse*) override;
  grpc::Status Drain(grpc::ServerContext*, const v1::DrainRequest*,
                     v1::DrainResponse* response) override;
  grpc::Status SetLogLevel(grpc::ServerContext*, const v1::SetLogLevelRequest* request,
                           v1::SetLogLevelResponse* response) override;
  grpc::Status EndLease(grpc::ServerContext*, const v1::EndLeaseRequest* request,
                        v1::EndLeaseResponse* response) override;

 private:
  struct Held {
    v1::UploadHeader header;
    std::string codes, scales;
  };

  // The case of a signature; live rows are 0 with device-side M.
  absl::StatusOr<GroupedCase> CaseOf(const v1::Signature& signature) const;
  std::string Compute(const GroupedCase& c, const Held& weights,
                      const v1::InlineOperands& operands) const;

  const Fault fault_;
  std::string folder_, endpoint_;
  mutable std::mutex mutex_;
  std::map<std::string, Held> held_;             // guarded by mutex_
  std::map<std::string, v1::Signature> plans_;   // guarded by mutex_
  int next_plan_ = 0;                            // guarded by mutex_
  std::map<std::string, std::string> metadata_;  // guarded by mutex_
  std::string log_level_ = "info";               // guarded by mutex_
  int executions_ = 0;                           // guarded by mutex_
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace tetrad::cli
