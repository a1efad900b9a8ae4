// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// grpc.health.v1.Health: whether the daemon wants requests, as a whole ("") and
// per service. A drain ends every Watch: one left open would hold the RPC
// server's shutdown to its limit, also one on a service nobody knows.
//
// Thread-safe. The library's own health service is not used because its
// watches cannot be ended.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace tetrad {

class HealthService final : public grpc::health::v1::Health::CallbackService {
 public:
  static constexpr size_t kMaxWatches = 1024;

  explicit HealthService(std::set<std::string, std::less<>> services)
      : services_(std::move(services)) {}

  // Not serving until first set.
  void SetServing(bool serving);
  int64_t open_watches() const;
  // Ends open watches, after they heard the last status, and refuses new ones.
  void EndWatches();

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::health::v1::HealthCheckRequest* request,
                                  grpc::health::v1::HealthCheckResponse* response) override;
  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context,
      const grpc::health::v1::HealthCheckRequest* request) override;

 private:
  using ServingStatus = grpc::health::v1::HealthCheckResponse::ServingStatus;
  class Watcher;
  // What a watcher has to do next. Deciding on a write or the end claims the
  // watcher: until it is done nobody else acts on it, and it is not gone.
  enum class Action { kNone, kWrite, kFinish };

  ServingStatus StatusOf(std::string_view service) const;  // holds mutex_
  Action Decide(Watcher& watcher);                         // holds mutex_
  static void Act(Watcher& watcher, Action action);
  // Notes something that happened to one watcher, or to all, and acts on it.
  void Event(Watcher& watcher, absl::FunctionRef<void(Watcher&)> note);
  void Change(absl::FunctionRef<void()> change);

  const std::set<std::string, std::less<>> services_;
  mutable std::mutex mutex_;
  std::set<Watcher*> watchers_;  // guarded by mutex_
  bool serving_ = false;         // guarded by mutex_
  bool ended_ = false;           // guarded by mutex_
};

}  // namespace tetrad
