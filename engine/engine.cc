// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <mutex>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

#include "engine/executor_thread.h"
#include "engine/inline_operands.h"
#include "engine/plan_cache.h"
#include "engine/plan_handles.h"
#include "engine/support/doorbell.h"
#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

Instant ToInstant(absl::Time deadline) {
  if (deadline == absl::InfiniteFuture()) return kNever;
  const int64_t left = absl::ToInt64Nanoseconds(deadline - absl::Now());
  const Instant now = SteadyNow();
  return left > kNever - now ? kNever : now + left;
}

absl::Status OutcomeStatus(const Launch& launch, const Signature& signature) {
  switch (launch.outcome) {
    case LaunchOutcome::kDone:
      if (launch.error_word == 0) return absl::OkStatus();
      return absl::InvalidArgumentError(
          absl::StrCat("m_values: ",
                       (launch.error_word & kErrorOffsetsNotMonotone) != 0
                           ? "offsets must start at 0 and never fall"
                           : "a count is negative or beyond the capacity",
                       ", rows=", signature.capacity_rows));
    case LaunchOutcome::kRefused:
      return absl::Status(launch.code, "the device refused the launch");
    case LaunchOutcome::kFailed:
      return absl::InternalError("the device reports that the launch failed");
    case LaunchOutcome::kDeadlineExceeded:
      return absl::DeadlineExceededError("the deadline passed before the result was ready");
    case LaunchOutcome::kCancelled:
      return absl::CancelledError("cancelled by the client");
    case LaunchOutcome::kShutDown:
      return absl::UnavailableError("the engine is shutting down");
  }
  return absl::InternalError("unknown launch outcome");
}

}  // namespace

class Engine::Impl {
 public:
  Impl(std::unique_ptr<Device> device, std::shared_ptr<Doorbell> doorbell,
       const EngineOptions& options)
      : options_(options),
        doorbell_(std::move(doorbell)),
        device_(std::move(device)),
        staging_(options_.staging_bytes),
        weights_(*device_, options_.weights, [this] { ReleaseStaleWeights(); }),
        plans_({options_.plan_capacity, options_.plan_host_bytes},
               [this](const Signature& s) { return BuildEntry(s); }),
        handles_({.handles = options_.max_plan_handles}),
        executor_(*device_, options_.queue_depth, &SteadyNow),
        thread_(executor_, doorbell_) {}

  // Bound to one signature and one version of its weights.
  struct Resolved {
    Signature signature;  // canonical
    std::shared_ptr<const WeightsVersion> weights;
  };

  absl::StatusOr<Resolved> Resolve(const SignatureRequest& request) const;
  absl::StatusOr<PreparedPlan> Prepare(std::string_view client, const SignatureRequest& request);
  ExecutionId Execute(const ExecuteRequest& request, Done done);
  void Cancel(ExecutionId id);
  EngineStats Stats() const;

 private:
  friend class Engine;
  struct Execution {
    Launch launch;
    Impl* impl = nullptr;
    ExecutionId id = ExecutionId::kNone;
    StagingLease staging;
    Done done;
  };

  absl::StatusOr<std::shared_ptr<PlanEntry>> BuildEntry(const Signature& signature);
  void ReleaseStaleWeights();
  absl::StatusOr<Resolved> ResolveExecute(const ExecuteRequest& request) const;
  absl::StatusOr<StagingLease> CheckOut(PlanEntry& entry,
                                        const std::shared_ptr<const WeightsVersion>& weights);
  absl::StatusOr<std::unique_ptr<Execution>> Stage(const ExecuteRequest& request);
  static void OnDone(Launch* launch);

  const EngineOptions options_;
  const std::shared_ptr<Doorbell> doorbell_;
  const std::unique_ptr<Device> device_;
  ByteBudget staging_;
  WeightsRegistry weights_;
  PlanCache plans_;
  PlanHandles handles_;
  Executor executor_;

  mutable std::mutex mutex_;
  absl::flat_hash_map<ExecutionId, std::unique_ptr<Execution>> running_;  // guarded by mutex_
  uint64_t last_execution_ = 0;                                           // guarded by mutex_

  ExecutorThread thread_;  // last: stops before what it drives is destroyed
};

absl::StatusOr<std::shared_ptr<PlanEntry>> Engine::Impl::BuildEntry(const Signature& signature) {
  TETRAD_ASSIGN_OR_RETURN(Plan plan, BuildPlan(signature, device_->limits()));
  return std::make_shared<PlanEntry>(*device_, staging_, std::move(plan));
}

void Engine::Impl::ReleaseStaleWeights() {
  for (const auto& entry : plans_.Entries()) entry->ReleaseStaleWeights();
}

absl::StatusOr<Engine::Impl::Resolved> Engine::Impl::Resolve(
    const SignatureRequest& request) const {
  TETRAD_ASSIGN_OR_RETURN(auto weights, weights_.Resolve(request.weights));
  const std::vector<GroupDims>& dims = weights->spec().groups;
  Signature signature;
  signature.types = request.types;
  signature.types.b_scale_layout = weights->spec().scale_layout;
  signature.form = request.form;
  signature.m_source = request.m_source;
  signature.row_scale = request.row_scale;
  signature.c_stride = request.c_stride;
  signature.capacity_rows = request.capacity_rows;
  signature.device = device_->limits().uuid;
  const size_t want_m = signature.device_m() ? 0 : dims.size();
  if (request.m.size() != want_m) {
    return absl::InvalidArgumentError(absl::StrCat("m: ", request.m.size(), " values, must be ",
                                                   want_m, " (", dims.size(), " groups in ",
                                                   weights->reference(), ")"));
  }
  signature.groups.reserve(dims.size());
  for (size_t g = 0; g < dims.size(); ++g) {
    signature.groups.push_back({want_m != 0 ? request.m[g] : 0, dims[g].n, dims[g].k});
  }
  TETRAD_ASSIGN_OR_RETURN(signature, Canonicalize(std::move(signature), options_.signatures));
  return Resolved{std::move(signature), std::move(weights)};
}

absl::StatusOr<PreparedPlan> Engine::Impl::Prepare(std::string_view client,
                                                   const SignatureRequest& request) {
  TETRAD_ASSIGN_OR_RETURN(Resolved resolved, Resolve(request));
  TETRAD_ASSIGN_OR_RETURN(const PlanCache::Found found, plans_.Get(resolved.signature));
  TETRAD_ASSIGN_OR_RETURN(std::string handle,
                          handles_.Add(client, {std::move(resolved.signature), request.weights}));
  return PreparedPlan{std::move(handle), found.entry->shared_plan(), resolved.weights->reference(),
                      found.cached};
}

absl::StatusOr<Engine::Impl::Resolved> Engine::Impl::ResolveExecute(
    const ExecuteRequest& request) const {
  if (request.plan.empty()) {
    if (request.signature == nullptr) {
      return absl::InvalidArgumentError("plan or signature: one of them must be given");
    }
    return Resolve(*request.signature);
  }
  TETRAD_ASSIGN_OR_RETURN(const auto handle, handles_.Find(request.client, request.plan));
  const std::string& reference = request.weights.empty() ? handle->weights : request.weights;
  TETRAD_ASSIGN_OR_RETURN(auto weights, weights_.Resolve(reference));
  TETRAD_RETURN_IF_ERROR(CheckWeightsFit(handle->signature, *weights));
  return Resolved{handle->signature, std::move(weights)};
}

absl::StatusOr<StagingLease> Engine::Impl::CheckOut(
    PlanEntry& entry, const std::shared_ptr<const WeightsVersion>& weights) {
  auto lease = entry.CheckOut(weights);
  if (!absl::IsResourceExhausted(lease.status())) return lease;
  // Staging of plans not used for long goes first; what is in use stays.
  for (const auto& other : plans_.Entries()) {
    if (other.get() == &entry || other->ReleaseIdle() == 0) continue;
    lease = entry.CheckOut(weights);
    if (!absl::IsResourceExhausted(lease.status())) return lease;
  }
  return lease;
}

absl::StatusOr<std::unique_ptr<Engine::Impl::Execution>> Engine::Impl::Stage(
    const ExecuteRequest& request) {
  TETRAD_RETURN_IF_ERROR(executor_.Admissible());
  TETRAD_ASSIGN_OR_RETURN(const Resolved resolved, ResolveExecute(request));
  TETRAD_ASSIGN_OR_RETURN(const PlanCache::Found found, plans_.Get(resolved.signature));
  TETRAD_RETURN_IF_ERROR(
      CheckInlineOperands(found.entry->plan(), request.operands, options_.max_inline_bytes));
  auto execution = std::make_unique<Execution>();
  TETRAD_ASSIGN_OR_RETURN(execution->staging, CheckOut(*found.entry, resolved.weights));
  TETRAD_RETURN_IF_ERROR(CopyInlineOperands(execution->staging, request.operands));
  execution->launch.binding = execution->staging.set().binding;
  execution->launch.priority = request.priority;
  execution->launch.deadline = ToInstant(request.deadline);
  execution->launch.done = &Impl::OnDone;
  execution->launch.context = execution.get();
  execution->impl = this;
  return execution;
}

ExecutionId Engine::Impl::Execute(const ExecuteRequest& request, Done done) {
  // Before any work: what is already too late must not cost others time.
  if (request.deadline <= absl::Now()) {
    done(absl::DeadlineExceededError("the deadline passed before the request was admitted"));
    return ExecutionId::kNone;
  }
  auto staged = Stage(request);
  if (!staged.ok()) {
    done(staged.status());
    return ExecutionId::kNone;
  }
  Execution* const execution = staged->get();
  execution->done = std::move(done);
  absl::Status submitted;
  ExecutionId id;
  {
    std::lock_guard lock(mutex_);
    id = static_cast<ExecutionId>(++last_execution_);
    execution->id = id;
    submitted = executor_.Submit(&execution->launch);
    if (submitted.ok()) running_.emplace(id, *std::move(staged));
  }
  if (!submitted.ok()) {
    execution->done(submitted);
    return ExecutionId::kNone;
  }
  doorbell_->Ring();
  return id;
}

void Engine::Impl::Cancel(ExecutionId id) {
  {
    std::lock_guard lock(mutex_);
    const auto at = running_.find(id);
    if (at == running_.end()) return;
    executor_.Cancel(&at->second->launch);
  }
  doorbell_->Ring();
}

void Engine::Impl::OnDone(Launch* launch) {
  Execution* const ended = static_cast<Execution*>(launch->context);
  Impl& impl = *ended->impl;
  std::unique_ptr<Execution> execution;
  {
    std::lock_guard lock(impl.mutex_);
    const auto at = impl.running_.find(ended->id);
    execution = std::move(at->second);
    impl.running_.erase(at);
  }
  if (absl::Status status = OutcomeStatus(*launch, execution->staging.plan().signature);
      !status.ok()) {
    execution->staging = StagingLease();  // back before the client hears, who may ask again
    execution->done(std::move(status));
    return;
  }
  const Timings timings{launch->launching - launch->submitted, launch->launched - launch->launching,
                        launch->device_ns, launch->completed - launch->submitted};
  execution->done(Executed(std::move(execution->staging), timings));
}

EngineStats Engine::Impl::Stats() const {
  EngineStats stats;
  stats.memory = device_->memory_use();
  const PlanCache::Stats plans = plans_.stats();
  stats.plans_cached = plans.size;
  stats.plan_hits = plans.hits;
  stats.plan_misses = plans.misses;
  stats.plan_evictions = plans.evictions;
  stats.plan_handles = handles_.size();
  const WeightsRegistry::Use weights = weights_.use();
  stats.weights_versions = weights.versions;
  stats.weights_bytes = weights.bytes;
  stats.staging_bytes = staging_.used_bytes();
  const ExecutorStats executor = executor_.stats();
  stats.queued = executor.queued;
  stats.in_flight = executor.queued + executor.on_device;
  return stats;
}

Executed::Executed(StagingLease staging, Timings timings)
    : staging_(std::move(staging)), timings_(timings) {}

absl::Status Executed::CopyOutput(std::span<std::byte> out) const {
  return CopyInlineOutput(staging_, out);
}

double Executed::share() const {
  return timings_.device_ns > 0 ? plan().floor.floor_us() * 1e3 / timings_.device_ns : 0;
}

std::string Executed::weights() const { return staging_.set().weights->reference(); }

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(DeviceFactory make_device,
                                                       const EngineOptions& options) {
  auto doorbell = std::make_shared<Doorbell>();
  TETRAD_ASSIGN_OR_RETURN(auto device, make_device([doorbell] { doorbell->Ring(); }));
  return std::unique_ptr<Engine>(
      new Engine(std::make_unique<Impl>(std::move(device), std::move(doorbell), options)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

WeightsRegistry& Engine::weights() { return impl_->weights_; }
const DeviceLimits& Engine::device_limits() const { return impl_->device_->limits(); }
const EngineOptions& Engine::options() const { return impl_->options_; }
absl::StatusOr<PreparedPlan> Engine::Prepare(std::string_view client,
                                             const SignatureRequest& request) {
  return impl_->Prepare(client, request);
}
absl::Status Engine::Release(std::string_view client, std::string_view handle) {
  return impl_->handles_.Remove(client, handle);
}
ExecutionId Engine::Execute(const ExecuteRequest& request, Done done) {
  return impl_->Execute(request, std::move(done));
}
void Engine::Cancel(ExecutionId id) { impl_->Cancel(id); }
EngineStats Engine::Stats() const { return impl_->Stats(); }

}  // namespace tetrad
