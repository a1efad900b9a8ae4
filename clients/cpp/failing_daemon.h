// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// FailingDaemon: the unary methods of a daemon in this process, for tests of what
// a client does about failures. Each call takes the next planned failure, or works
// once there is none; all calls are counted, with what metadata they brought.
// Thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <grpcpp/grpcpp.h>

#include "absl/time/time.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tetrad/v1/admin.grpc.pb.h"
#include "tetrad/v1/gemm.grpc.pb.h"
#include "tetrad/v1/memory.grpc.pb.h"
#include "tetrad/v1/status.grpc.pb.h"
#include "tetrad/v1/weights.grpc.pb.h"

namespace tetrad {

// The trailer of a failure as a daemon sends it; without a delay no RetryInfo.
inline std::string ErrorDetails(const std::string& reason,
                                std::optional<absl::Duration> delay = std::nullopt) {
  google::rpc::Status wire;
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  info.set_domain("tetrad");
  wire.add_details()->PackFrom(info);
  if (delay.has_value()) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(absl::ToInt64Seconds(*delay));
    retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(
        absl::ToInt64Nanoseconds(*delay - absl::Seconds(absl::ToInt64Seconds(*delay)))));
    wire.add_details()->PackFrom(retry);
  }
  return wire.SerializeAsString();
}

class FailingDaemon final {
 public:
  using Metadata = std::multimap<std::string, std::string>;
  // Called with each call's metadata: a failure that is not planned.
  using Gate = std::function<grpc::Status(const Metadata&)>;

  explicit FailingDaemon(
      const std::string& address,
      std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials())
      : address_(address) {
    Start(std::move(credentials));
  }
  ~FailingDaemon() { Stop(); }

  void Start(
      std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials()) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address_, std::move(credentials), &port_);
    builder.RegisterService(&status_);
    builder.RegisterService(&weights_);
    builder.RegisterService(&gemm_);
    builder.RegisterService(&memory_);
    builder.RegisterService(&admin_);
    server_ = builder.BuildAndStart();
  }
  void Stop() {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
  }
  int port() const { return port_; }

  void Plan(int times, const grpc::Status& failure) {
    const std::lock_guard lock(mutex_);
    failures_.assign(static_cast<size_t>(times), failure);
  }
  void set_gate(Gate gate) {
    const std::lock_guard lock(mutex_);
    gate_ = std::move(gate);
  }
  int calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  Metadata last_metadata() const {
    const std::lock_guard lock(mutex_);
    return metadata_;
  }

 private:
  grpc::Status Take(const grpc::ServerContext& context) {
    Metadata metadata;
    for (const auto& [key, value] : context.client_metadata()) {
      metadata.emplace(std::string(key.data(), key.size()),
                       std::string(value.data(), value.size()));
    }
    const std::lock_guard lock(mutex_);
    ++calls_;
    metadata_ = metadata;
    if (gate_) return gate_(metadata);
    if (failures_.empty()) return grpc::Status::OK;
    const grpc::Status failure = failures_.front();
    failures_.pop_front();
    return failure;
  }

  template <typename Service>
  struct Fake : Service {
    explicit Fake(FailingDaemon& daemon) : daemon(daemon) {}
    grpc::Status Answer(grpc::ServerContext* context) { return daemon.Take(*context); }
    FailingDaemon& daemon;
  };
  using Context = grpc::ServerContext;
  struct FakeStatus final : Fake<v1::Status::Service> {
    using Fake::Fake;
    grpc::Status GetStatus(Context* c, const v1::GetStatusRequest*,
                           v1::GetStatusResponse*) override {
      return Answer(c);
    }
  };
  struct FakeWeights final : Fake<v1::Weights::Service> {
    using Fake::Fake;
    // Fails after a first message if the pattern says so.
    grpc::Status Load(Context* c, const v1::LoadRequest* request,
                      grpc::ServerWriter<v1::LoadProgress>* writer) override {
      v1::LoadProgress progress;
      if (request->pattern() == "progress first") writer->Write(progress);
      const grpc::Status status = Answer(c);
      progress.mutable_weights()->set_name(request->name());
      if (status.ok()) writer->Write(progress);
      return status;
    }
    grpc::Status Seal(Context* c, const v1::SealRequest*, v1::SealResponse*) override {
      return Answer(c);
    }
    grpc::Status List(Context* c, const v1::ListWeightsRequest*,
                      v1::ListWeightsResponse*) override {
      return Answer(c);
    }
    grpc::Status Drop(Context* c, const v1::DropRequest*, v1::DropResponse*) override {
      return Answer(c);
    }
  };
  struct FakeGemm final : Fake<v1::Gemm::Service> {
    using Fake::Fake;
    grpc::Status Prepare(Context* c, const v1::PrepareRequest*, v1::PrepareResponse*) override {
      return Answer(c);
    }
    grpc::Status Execute(Context* c, const v1::ExecuteRequest*, v1::ExecuteResponse*) override {
      return Answer(c);
    }
    grpc::Status Release(Context* c, const v1::ReleaseRequest*, v1::ReleaseResponse*) override {
      return Answer(c);
    }
  };
  struct FakeMemory final : Fake<v1::Memory::Service> {
    using Fake::Fake;
    grpc::Status Attach(Context* c, const v1::AttachRequest*,
                        grpc::ServerWriter<v1::AttachEvent>* writer) override {
      const grpc::Status status = Answer(c);
      v1::AttachEvent event;
      event.set_lease("lease");
      if (status.ok()) writer->Write(event);
      return status;
    }
    grpc::Status Detach(Context* c, const v1::DetachRequest*, v1::DetachResponse*) override {
      return Answer(c);
    }
    grpc::Status Allocate(Context* c, const v1::AllocateRequest*, v1::AllocateResponse*) override {
      return Answer(c);
    }
    // Half of it, then what is planned, or the other half.
    grpc::Status Read(Context* c, const v1::ReadRequest* request,
                      grpc::ServerWriter<v1::ReadResponse>* writer) override {
      v1::ReadResponse piece;
      piece.set_data(std::string(static_cast<size_t>(request->bytes() / 2), 'x'));
      writer->Write(piece);
      const grpc::Status status = Answer(c);
      if (status.ok()) writer->Write(piece);
      return status;
    }
    grpc::Status Free(Context* c, const v1::FreeRequest*, v1::FreeResponse*) override {
      return Answer(c);
    }
    grpc::Status List(Context* c, const v1::ListBlocksRequest*, v1::ListBlocksResponse*) override {
      return Answer(c);
    }
  };
  struct FakeAdmin final : Fake<v1::Admin::Service> {
    using Fake::Fake;
    grpc::Status Drain(Context* c, const v1::DrainRequest*, v1::DrainResponse*) override {
      return Answer(c);
    }
    grpc::Status SetLogLevel(Context* c, const v1::SetLogLevelRequest*,
                             v1::SetLogLevelResponse*) override {
      return Answer(c);
    }
    grpc::Status EndLease(Context* c, const v1::EndLeaseRequest*, v1::EndLeaseResponse*) override {
      return Answer(c);
    }
  };

  const std::string address_;
  int port_ = 0;
  mutable std::mutex mutex_;
  std::deque<grpc::Status> failures_;  // guarded by mutex_
  Gate gate_;                          // guarded by mutex_
  Metadata metadata_;                  // of the last call; guarded by mutex_
  int calls_ = 0;                      // guarded by mutex_
  FakeStatus status_{*this};
  FakeWeights weights_{*this};
  FakeGemm gemm_{*this};
  FakeMemory memory_{*this};
  FakeAdmin admin_{*this};
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace tetrad
