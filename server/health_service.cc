// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/health_service.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/support/server_callback.h"

#include "engine/support/error_detail.h"
#include "server/status.h"

namespace tetrad {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// One Watch. All state belongs to the service's mutex; the RPC library is
// called without it, because it may call back at once.
class HealthService::Watcher final : public grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  Watcher(HealthService& health, std::string service)
      : health_(health), service_(std::move(service)) {}

  void OnWriteDone(bool ok) override {
    health_.Event(*this, [ok](Watcher& self) {
      self.writing_ = false;
      self.cancelled_ |= !ok;
    });
  }
  void OnCancel() override {
    health_.Event(*this, [](Watcher& self) { self.cancelled_ = true; });
  }
  void OnDone() override { delete this; }

 private:
  friend class HealthService;
  HealthService& health_;
  const std::string service_;
  HealthCheckResponse message_;  // stable while writing_
  std::optional<ServingStatus> told_;
  bool writing_ = false;
  bool cancelled_ = false;
  bool finished_ = false;
};

HealthService::ServingStatus HealthService::StatusOf(std::string_view service) const {
  if (!services_.contains(service)) return HealthCheckResponse::SERVICE_UNKNOWN;
  return serving_ ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

HealthService::Action HealthService::Decide(Watcher& watcher) {
  if (watcher.writing_ || watcher.finished_) return Action::kNone;
  if (const ServingStatus status = StatusOf(watcher.service_);
      !watcher.cancelled_ && watcher.told_ != status) {
    watcher.told_ = status;
    watcher.message_.set_status(status);
    watcher.writing_ = true;
    return Action::kWrite;
  }
  if (!watcher.cancelled_ && !ended_) return Action::kNone;
  watcher.finished_ = true;
  watchers_.erase(&watcher);
  return Action::kFinish;
}

void HealthService::Act(Watcher& watcher, Action action) {
  if (action == Action::kWrite) {
    watcher.StartWrite(&watcher.message_);
  } else if (action == Action::kFinish) {
    watcher.Finish(ToGrpc(ReasonError(Reason::kDraining, "the watch has ended")));
  }
}

void HealthService::Event(Watcher& watcher, absl::FunctionRef<void(Watcher&)> note) {
  Action action;
  {
    std::lock_guard lock(mutex_);
    note(watcher);
    action = Decide(watcher);
  }
  Act(watcher, action);
}

void HealthService::Change(absl::FunctionRef<void()> change) {
  std::vector<std::pair<Watcher*, Action>> actions;
  {
    std::lock_guard lock(mutex_);
    change();
    const std::vector<Watcher*> watchers(watchers_.begin(), watchers_.end());
    for (Watcher* watcher : watchers) actions.emplace_back(watcher, Decide(*watcher));
  }
  for (const auto& [watcher, action] : actions) Act(*watcher, action);
}

void HealthService::SetServing(bool serving) {
  Change([this, serving] { serving_ = serving; });
}

int64_t HealthService::open_watches() const {
  std::lock_guard lock(mutex_);
  return static_cast<int64_t>(watchers_.size());
}

void HealthService::EndWatches() {
  Change([this] { ended_ = true; });
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context,
                                               const HealthCheckRequest* request,
                                               HealthCheckResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  ServingStatus status;
  {
    std::lock_guard lock(mutex_);
    status = StatusOf(request->service());
  }
  if (status == HealthCheckResponse::SERVICE_UNKNOWN) {
    reactor->Finish(ToGrpc(
        absl::NotFoundError(absl::StrCat("no service is called '", request->service(), "'"))));
  } else {
    response->set_status(status);
    reactor->Finish(grpc::Status::OK);
  }
  return reactor;
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(
    grpc::CallbackServerContext*, const HealthCheckRequest* request) {
  auto* const watcher = new Watcher(*this, request->service());
  bool full;
  {
    std::lock_guard lock(mutex_);
    full = watchers_.size() >= kMaxWatches;
    watcher->finished_ = full;
    if (!full) watchers_.insert(watcher);
  }
  if (full) {
    watcher->Finish(ToGrpc(ReasonError(
        Reason::kTableFull, absl::StrCat(kMaxWatches, " health watches are open, the limit"))));
  } else {
    Event(*watcher, [](Watcher&) {});
  }
  return watcher;
}

}  // namespace tetrad
