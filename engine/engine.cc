// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <atomic>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"

#include "engine/engine_threads.h"
#include "engine/plan_handles.h"
#include "engine/plan_source.h"
#include "engine/steady_clock.h"
#include "engine/support/doorbell.h"
#include "engine/support/error_detail.h"
#include "engine/support/no_memory.h"
#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

absl::Status DeviceLost() {
  return ReasonError(Reason::kDeviceLost, "the device was lost, the daemon restarts");
}

absl::Status OutcomeStatus(const Launch& launch, const Signature& signature) {
  switch (launch.outcome) {
    case LaunchOutcome::kDone:
      if (launch.error_word == 0) return absl::OkStatus();
      // Those that came inline were looked at before.
      return FieldError({.field = "block_operands.m_values_block",
                         .limit = absl::StrCat("at most ", signature.capacity_rows, " rows")},
                        Reason::kCountsBeyondCapacity,
                        absl::StrCat("m_values: ",
                                     (launch.error_word & kErrorOffsetsNotMonotone) != 0
                                         ? "offsets must start at 0 and never fall"
                                         : "a count is negative or beyond the capacity",
                                     ", rows=", signature.capacity_rows));
    case LaunchOutcome::kRefused:
      // Its code is all that came from the device, so no reason is known.
      return absl::Status(launch.code, "the device refused the launch");
    case LaunchOutcome::kFailed:
      return ReasonError(Reason::kInternal, "the device reports that the launch failed");
    case LaunchOutcome::kDeadlineExceeded:
      return ReasonError(Reason::kDeadline, "the deadline passed before the result was ready");
    case LaunchOutcome::kCancelled:
      return ReasonError(Reason::kCancelled, "cancelled by the client");
    case LaunchOutcome::kShutDown:
      return ReasonError(Reason::kDraining, "the engine is shutting down");
    case LaunchOutcome::kDeviceLost:
      return DeviceLost();
  }
  return ReasonError(Reason::kInternal, "unknown launch outcome");
}

// Below any sensible launch_timeout, so that the thread of Step() need not be
// told of a launch which the device took at once.
constexpr int64_t kStepIntervalNs = 1'000'000'000;

PlanHandles::Limits HandleLimits(const EngineOptions& options) {
  return {.entries = {"max_plan_handles", options.max_plan_handles},
          .bytes = {"bytes of plan handles", int64_t{256} << 20},
          .idle_ns = absl::ToInt64Nanoseconds(options.leases.handle_idle)};
}

}  // namespace

class Engine::Impl {
 public:
  Impl(std::unique_ptr<Device> device, std::unique_ptr<AllocationLog> log,
       const EngineOptions& options, Drive drive)
      : options_(options),
        drive_(std::move(drive)),
        device_(std::move(device)),
        log_(std::move(log)),
        pool_(Pool::From(*device_),
              {.chunk_bytes = RoundUp(options_.pool_chunk_bytes, FreeRanges::kGranuleBytes),
               .limit_bytes = device_->limits().memory_bytes,
               .log = log_.get(),
               .relieve = [this](int64_t) { return Relieve(); }}),
        staging_(options_.staging_bytes),
        reclaimer_(drive_.wake_housekeep),
        leases_(options_.leases, generation_),
        blocks_(device_->limits().memory_bytes, pool_, reclaimer_, leases_, held_blocks_,
                options_.leases, generation_),
        weights_(*device_, pool_, reclaimer_, options_.weights,
                 [this] {
                   stale_weights_.store(true);
                   drive_.wake_housekeep();
                 }),
        plans_({options_.plan_capacity, options_.plan_host_bytes},
               [this](const Signature& s) { return BuildEntry(s); }),
        handles_(HandleNames("plan", generation_, "prepare again"), HandleLimits(options_)),
        executor_(*device_,
                  {.queue_depth = options_.queue_depth,
                   .launch_timeout_ns = absl::ToInt64Nanoseconds(options_.launch_timeout),
                   .launch_at_submit = drive_.launch_in_execute,
                   .step_interval_ns = drive_.step_interval_ns},
                  drive_.clock) {}

  absl::StatusOr<PreparedPlan> Prepare(std::string_view client, const SignatureRequest& request,
                                       std::string_view lease);
  ExecutionId Execute(const ExecuteRequest& request, Done done);
  void Cancel(ExecutionId id);
  void EndLease(LeaseNumber number);
  Instant Step();
  Instant Housekeep();
  EngineStats Stats() const;

 private:
  friend class Engine;
  // A signature with one version of its weights.
  struct Resolved {
    PlanKey key;
    std::shared_ptr<const WeightsVersion> weights;
  };

  Instant now() const { return drive_.clock(); }
  // Nothing that the device says or holds is to be relied on any more.
  bool lost() const { return pool_.abandoned() || !device_->health().ok(); }
  absl::StatusOr<std::shared_ptr<PlanEntry>> BuildEntry(const Signature& signature);
  bool Relieve();
  bool ReleaseStaleWeights();
  void ReturnBoundChunks();
  bool ReleaseIdleStaging();
  absl::StatusOr<Resolved> Resolve(const SignatureRequest& request) const;
  absl::StatusOr<Resolved> ResolveExecute(const ExecuteRequest& request);
  absl::StatusOr<StagingLease> CheckOut(PlanEntry& entry, const Resolved& resolved,
                                        const OperandBlocks* blocks);
  absl::Status Stage(const ExecuteRequest& request, Execution** staged);
  static void OnDone(Launch* launch);

  const EngineOptions options_;
  const Drive drive_;
  const uint64_t generation_ = HandleNames::DrawSecret();
  const std::unique_ptr<Device> device_;
  const std::unique_ptr<AllocationLog> log_;
  Pool pool_;
  ByteBudget staging_;
  ByteBudget held_blocks_{INT64_MAX};
  Reclaimer reclaimer_;  // after all that what it owns refers to
  Leases leases_;
  ClientBlocks blocks_;
  WeightsRegistry weights_;
  PlanSource plans_;
  PlanHandles handles_;
  ExecutionSlots slots_;
  Executor executor_;
  std::atomic<bool> stale_weights_{false};
  std::array<std::atomic<int64_t>, kLaunchOutcomes> outcomes_{};
  std::atomic<uint32_t> next_lane_{0};
  bool lost_told_ = false;  // of Step() alone
};

absl::StatusOr<std::shared_ptr<PlanEntry>> Engine::Impl::BuildEntry(const Signature& signature) {
  TETRAD_ASSIGN_OR_RETURN(Plan plan, BuildPlan(signature, device_->limits()));
  return reclaimer_.Own(std::make_unique<PlanEntry>(*device_, pool_, staging_, std::move(plan)));
}

bool Engine::Impl::ReleaseStaleWeights() {
  if (!stale_weights_.exchange(false)) return false;
  absl::Cleanup later = [this] { stale_weights_.store(true); };  // the list may lack memory
  const auto entries = plans_.cache().Entries();
  std::move(later).Cancel();
  for (const auto& entry : entries) entry->ReleaseStaleWeights();
  return true;
}

// Staging of plans not used for long goes first; what is in use stays.
bool Engine::Impl::ReleaseIdleStaging() {
  for (const auto& entry : plans_.cache().Entries()) {
    if (entry->ReleaseIdle() > 0) return true;
  }
  return false;
}

// Device memory is lacking: what nobody uses is given up, a piece at a time.
bool Engine::Impl::Relieve() {
  const bool stale = ReleaseStaleWeights();
  return reclaimer_.Step() > 0 || stale || ReleaseIdleStaging();
}

absl::StatusOr<Engine::Impl::Resolved> Engine::Impl::Resolve(
    const SignatureRequest& request) const {
  auto weights = weights_.Resolve(request.weights);
  if (!weights.ok()) return InMessage("signature", weights.status());
  TETRAD_ASSIGN_OR_RETURN(
      Signature signature,
      SignatureFor(request, **weights, device_->limits().uuid, options_.signatures));
  return Resolved{PlanKey(std::move(signature)), *std::move(weights)};
}

absl::StatusOr<PreparedPlan> Engine::Impl::Prepare(std::string_view client,
                                                   const SignatureRequest& request,
                                                   std::string_view lease) {
  LeaseNumber number = LeaseNumber::kNone;
  if (!lease.empty()) {
    TETRAD_ASSIGN_OR_RETURN(number, leases_.Find(client, lease));
  }
  TETRAD_ASSIGN_OR_RETURN(Resolved resolved, Resolve(request));
  TETRAD_ASSIGN_OR_RETURN(const PlanCache::Found found, plans_.Get(resolved.key));
  // What idle bindings hold may be what is lacking.
  absl::Status ready;
  do {
    ready = device_->MakeReady(found.entry->shared_plan(), resolved.weights->codes(),
                               resolved.weights->scales());
  } while (absl::IsResourceExhausted(ready) && ReleaseIdleStaging());
  if (!ready.ok()) return lost() ? DeviceLost() : ready;
  auto handle = std::make_shared<const PlanHandle>(PlanHandle{resolved.key, request.weights});
  const int64_t bytes = handle->host_bytes();
  PreparedPlan prepared{
      {}, found.entry->shared_plan(), resolved.weights->reference(), found.cached};
  TETRAD_ASSIGN_OR_RETURN(prepared.handle,
                          handles_.Add({client, number}, bytes, std::move(handle), now()));
  if (number == LeaseNumber::kNone) {
    drive_.wake_housekeep();  // one more that will go when it is idle
  } else if (!leases_.Lives(number)) {
    handles_.RemoveLease(number);
    return leases_.Find(client, lease).status();
  }
  return prepared;
}

absl::StatusOr<Engine::Impl::Resolved> Engine::Impl::ResolveExecute(const ExecuteRequest& request) {
  if (request.plan.empty()) {
    if (request.signature == nullptr) {
      return FieldError({"plan_or_signature"}, Reason::kFieldMissing,
                        "plan or signature: one of them must be given");
    }
    return Resolve(*request.signature);
  }
  TETRAD_ASSIGN_OR_RETURN(const auto handle, handles_.Find(request.client, request.plan, now()));
  const std::string& reference = request.weights.empty() ? handle->weights : request.weights;
  TETRAD_ASSIGN_OR_RETURN(auto weights, weights_.Resolve(reference));
  TETRAD_RETURN_IF_ERROR(CheckWeightsFit(handle->key.signature(), *weights));
  return Resolved{handle->key, std::move(weights)};
}

absl::StatusOr<StagingLease> Engine::Impl::CheckOut(PlanEntry& entry, const Resolved& resolved,
                                                    const OperandBlocks* blocks) {
  for (;;) {
    auto lease = entry.CheckOut(resolved.weights, blocks);
    if (!absl::IsResourceExhausted(lease.status()) || !ReleaseIdleStaging()) return lease;
  }
}

absl::Status Engine::Impl::Stage(const ExecuteRequest& request, Execution** staged) {
  TETRAD_RETURN_IF_ERROR(executor_.Admissible());
  TETRAD_ASSIGN_OR_RETURN(const Resolved resolved, ResolveExecute(request));
  TETRAD_ASSIGN_OR_RETURN(const PlanCache::Found found, plans_.Get(resolved.key));
  const Plan& plan = found.entry->plan();
  TETRAD_RETURN_IF_ERROR(
      CheckInlineOperands(plan, request.operands, options_.max_inline_bytes, request.blocks));
  if (request.reserve) {
    TETRAD_RETURN_IF_ERROR(request.reserve(request.blocks != nullptr ? 0 : plan.wire.c_bytes));
  }
  Execution& execution = slots_.Take();
  absl::Cleanup put = [&] { slots_.Put(execution); };
  OperandBlocks blocks;
  if (request.blocks != nullptr) {
    TETRAD_RETURN_IF_ERROR(
        ResolveBlocks(plan, request.client, *request.blocks, blocks_, execution.blocks, blocks));
  }
  TETRAD_ASSIGN_OR_RETURN(
      execution.staging,
      CheckOut(*found.entry, resolved, request.blocks != nullptr ? &blocks : nullptr));
  TETRAD_RETURN_IF_ERROR(CopyInlineOperands(execution.staging, request.operands));
  execution.owner = this;
  execution.launch = Launch{};
  Launch& launch = execution.launch;
  launch.binding = execution.staging.set().binding;
  // The first lane is for what is urgent, so that it never waits behind the rest.
  const uint32_t others = static_cast<uint32_t>(device_->limits().lanes) - 1;
  const bool urgent = request.priority == Priority::kHigh || others == 0;
  launch.lane = LaneId{urgent ? 0 : 1 + next_lane_.fetch_add(1) % others};
  launch.predicted_ns = static_cast<int64_t>(plan.floor.floor_us() * 1e3);
  launch.priority = request.priority;
  launch.flow = request.flow;
  if (launch.flow.id == 0) launch.flow.id = absl::HashOf(request.client);
  launch.deadline = request.deadline;
  launch.done = &Impl::OnDone;
  launch.context = &execution;
  std::move(put).Cancel();
  *staged = &execution;
  return absl::OkStatus();
}

ExecutionId Engine::Impl::Execute(const ExecuteRequest& request, Done done) {
  // Before any work: what is already too late must not cost others time.
  if (request.deadline <= now()) {
    done(ReasonError(Reason::kDeadline, "the deadline passed before the request was admitted"));
    return ExecutionId::kNone;
  }
  if (lost()) {
    done(DeviceLost());
    return ExecutionId::kNone;
  }
  Execution* execution = nullptr;
  absl::Status status = CatchNoMemory([&] { return Stage(request, &execution); });
  if (!status.ok()) {
    if (lost()) status = DeviceLost();  // whatever it said about it
    done(std::move(status));
    return ExecutionId::kNone;
  }
  execution->done = std::move(done);
  const ExecutionId id = slots_.id(*execution);
  const absl::StatusOr<bool> step =
      CatchNoMemory([&] { return executor_.Submit(&execution->launch); });
  if (!step.ok()) {
    done = std::move(execution->done);
    slots_.Put(*execution);
    done(step.status());
    return ExecutionId::kNone;
  }
  // From here on the execution may have ended. A thread that spins is woken now,
  // so that it is awake when the launch completes.
  if (*step || options_.spin > absl::ZeroDuration()) drive_.wake_step();
  return id;
}

void Engine::Impl::Cancel(ExecutionId id) {
  slots_.IfTaken(id, [this](Execution& execution) { executor_.Cancel(&execution.launch); });
  drive_.wake_step();
}

void Engine::Impl::OnDone(Launch* launch) {
  Execution& execution = *static_cast<Execution*>(launch->context);
  Impl& engine = *static_cast<Impl*>(execution.owner);
  engine.outcomes_[static_cast<size_t>(launch->outcome)].fetch_add(1, std::memory_order_relaxed);
  // Before anything is given back: what a lost device does with it is not known.
  if (launch->outcome == LaunchOutcome::kDeviceLost) engine.pool_.Abandon();
  const Timings timings{launch->launching - launch->submitted, launch->launched - launch->launching,
                        launch->device_ns, launch->completed - launch->submitted};
  absl::Status status =
      CatchNoMemory([&] { return OutcomeStatus(*launch, execution.staging.plan().signature); });
  Executed executed;
  if (status.ok()) executed = Executed(std::move(execution.staging), timings);
  Done done = std::move(execution.done);
  // All is back before the client hears, who may ask again.
  engine.slots_.Put(execution);
  if (status.ok()) {
    done(std::move(executed));
  } else {
    done(std::move(status));
  }
}

void Engine::Impl::EndLease(LeaseNumber number) {
  blocks_.FreeLease(number);
  handles_.RemoveLease(number);
}

Instant Engine::Impl::Step() {
  const Instant due = executor_.Step();
  if (lost_told_) return due;
  if (const absl::Status lost = executor_.lost(); !lost.ok()) {
    lost_told_ = true;
    pool_.Abandon();
    if (options_.on_device_lost) options_.on_device_lost(lost);
  }
  return due;
}

Instant Engine::Impl::Housekeep() {
  const Instant instant = now();
  Instant due = kNever;
  const absl::Status status = CatchNoMemory([&] {
    std::vector<LeaseNumber> ended;
    // Also those that ended before memory was lacking for more.
    absl::Cleanup end_all = [&] {
      for (const LeaseNumber number : ended) EndLease(number);
    };
    due = leases_.Step(instant, ended);
    std::move(end_all).Invoke();
    due = std::min(due, handles_.RemoveIdle(instant));
    ReleaseStaleWeights();
    reclaimer_.Step();
    ReturnBoundChunks();
    return absl::OkStatus();
  });
  constexpr int64_t kRetryNs = 100'000'000;
  return status.ok() ? due : After(instant, kRetryNs);
}

// A binding that waits for its next use still names the blocks of its last one;
// if their chunk was to go back meanwhile, the device refused it.
void Engine::Impl::ReturnBoundChunks() {
  const std::vector<AllocationId> unreturned = pool_.Unreturned();
  if (unreturned.empty()) return;
  for (const auto& entry : plans_.cache().Entries()) entry->UnbindIdle(unreturned);
  pool_.ReturnAgain();
}

EngineStats Engine::Impl::Stats() const {
  EngineStats stats;
  stats.memory = device_->memory_use();
  stats.execution = device_->execution_use();
  const PlanCache::Stats plans = plans_.cache().stats();
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
  stats.pool = pool_.stats();
  stats.leases = leases_.stats();
  stats.blocks = blocks_.count();
  stats.block_bytes = held_blocks_.used_bytes();
  stats.reclaimable = reclaimer_.queued();
  for (size_t i = 0; i < outcomes_.size(); ++i) {
    stats.outcomes[i] = outcomes_[i].load(std::memory_order_relaxed);
  }
  return stats;
}

Executed::Executed(StagingLease staging, Timings timings)
    : staging_(std::move(staging)), timings_(timings) {}

int64_t Executed::output_bytes() const {
  return staging_.set().form == StagingForm::kInline ? plan().wire.c_bytes : 0;
}

absl::Status Executed::CopyOutput(std::span<std::byte> out) const {
  return out.empty() ? absl::OkStatus() : CopyInlineOutput(staging_, out);
}

double Executed::share() const {
  return timings_.device_ns > 0 ? plan().floor.floor_us() * 1e3 / timings_.device_ns : 0;
}

std::string Executed::weights() const { return staging_.set().weights->reference(); }

absl::StatusOr<std::unique_ptr<Engine>> Engine::CreateStepped(DeviceFactory make_device,
                                                              const EngineOptions& options,
                                                              Drive drive) {
  std::unique_ptr<AllocationLog> log;
  if (!options.allocation_log.empty()) {
    TETRAD_ASSIGN_OR_RETURN(log, AllocationLog::Open(options.allocation_log));
  }
  TETRAD_ASSIGN_OR_RETURN(auto device, make_device(drive.wake_step));
  return std::unique_ptr<Engine>(new Engine(
      std::make_unique<Impl>(std::move(device), std::move(log), options, std::move(drive))));
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(DeviceFactory make_device,
                                                       const EngineOptions& options) {
  auto step = std::make_shared<Doorbell>(absl::ToChronoNanoseconds(options.spin));
  auto housekeep = std::make_shared<Doorbell>();
  TETRAD_ASSIGN_OR_RETURN(auto engine,
                          CreateStepped(std::move(make_device), options,
                                        {.clock = &SteadyNow,
                                         .wake_step = [step] { step->Ring(); },
                                         .wake_housekeep = [housekeep] { housekeep->Ring(); },
                                         .launch_in_execute = true,
                                         .step_interval_ns = kStepIntervalNs}));
  engine->threads_ =
      std::make_unique<EngineThreads>(*engine, std::move(step), std::move(housekeep));
  return engine;
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

WeightsRegistry& Engine::weights() { return impl_->weights_; }
const DeviceLimits& Engine::device_limits() const { return impl_->device_->limits(); }
const EngineOptions& Engine::options() const { return impl_->options_; }

Instant Engine::Step() { return impl_->Step(); }
Instant Engine::Housekeep() { return impl_->Housekeep(); }
void Engine::Close() { impl_->executor_.Close(); }
bool Engine::idle() const { return impl_->executor_.idle(); }

absl::StatusOr<LeaseInfo> Engine::Attach(std::string_view client, std::string_view resume) {
  return CatchNoMemory([&]() -> absl::StatusOr<LeaseInfo> {
    LeaseInfo info{std::string(resume), options().leases.grace, !resume.empty(), 1};
    if (info.resumed) {
      TETRAD_ASSIGN_OR_RETURN(info.attachment, impl_->leases_.Resume(client, resume));
    } else {
      TETRAD_ASSIGN_OR_RETURN(info.lease, impl_->leases_.Open(client));
    }
    return info;
  });
}

void Engine::Detach(const LeaseInfo& attachment) {
  impl_->leases_.Detach(attachment.lease, attachment.attachment, impl_->now());
  impl_->drive_.wake_housekeep();
}

absl::Status Engine::EndLease(std::string_view client, std::string_view lease) {
  return CatchNoMemory([&]() -> absl::Status {
    TETRAD_ASSIGN_OR_RETURN(const LeaseNumber number, impl_->leases_.End(client, lease));
    impl_->EndLease(number);
    return absl::OkStatus();
  });
}

absl::StatusOr<std::string> Engine::EndLease(std::string_view lease) {
  return CatchNoMemory([&]() -> absl::StatusOr<std::string> {
    TETRAD_ASSIGN_OR_RETURN(Leases::Ended ended, impl_->leases_.End(lease));
    impl_->EndLease(ended.number);
    return std::move(ended.client);
  });
}

absl::Status Engine::CheckLease(std::string_view client, std::string_view lease) const {
  return CatchNoMemory([&] { return impl_->leases_.Find(client, lease).status(); });
}

absl::StatusOr<BlockInfo> Engine::Allocate(std::string_view client, std::string_view lease,
                                           int64_t bytes) {
  return CatchNoMemory([&] { return impl_->blocks_.Allocate(client, lease, bytes, impl_->now()); });
}

absl::StatusOr<BlockInfo> Engine::FindBlock(std::string_view client, std::string_view block) const {
  return CatchNoMemory([&]() -> absl::StatusOr<BlockInfo> {
    TETRAD_ASSIGN_OR_RETURN(const auto found, impl_->blocks_.Find(client, block));
    return BlockInfo{std::string(block), found->lease(), found->bytes()};
  });
}

absl::Status Engine::Write(std::string_view client, std::string_view block, int64_t offset,
                           std::span<const std::byte> data) {
  return CatchNoMemory([&]() -> absl::Status {
    TETRAD_ASSIGN_OR_RETURN(const auto found, impl_->blocks_.Find(client, block));
    TETRAD_ASSIGN_OR_RETURN(const BlockRef to,
                            found->Range(offset, static_cast<int64_t>(data.size())));
    if (impl_->lost()) return DeviceLost();
    return impl_->device_->Write(to.allocation, to.offset, data);
  });
}

absl::Status Engine::Read(std::string_view client, std::string_view block, int64_t offset,
                          std::span<std::byte> out) const {
  return CatchNoMemory([&]() -> absl::Status {
    TETRAD_ASSIGN_OR_RETURN(const auto found, impl_->blocks_.Find(client, block));
    TETRAD_ASSIGN_OR_RETURN(const BlockRef from,
                            found->Range(offset, static_cast<int64_t>(out.size())));
    if (impl_->lost()) return DeviceLost();
    return impl_->device_->Read(from.allocation, from.offset, out);
  });
}

absl::StatusOr<std::shared_ptr<KeyedWrite>> Engine::KeyedWriteOf(std::string_view client,
                                                                 std::string_view block) const {
  return CatchNoMemory([&]() -> absl::StatusOr<std::shared_ptr<KeyedWrite>> {
    TETRAD_ASSIGN_OR_RETURN(const auto found, impl_->blocks_.Find(client, block));
    return found->keyed_write();
  });
}

absl::Status Engine::Free(std::string_view client, std::string_view block) {
  return CatchNoMemory([&] { return impl_->blocks_.Free(client, block); });
}

absl::StatusOr<std::vector<BlockInfo>> Engine::ListBlocks(std::string_view client,
                                                          std::string_view lease) const {
  return CatchNoMemory([&] { return impl_->blocks_.List(client, lease); });
}

absl::StatusOr<PreparedPlan> Engine::Prepare(std::string_view client,
                                             const SignatureRequest& request,
                                             std::string_view lease) {
  return CatchNoMemory([&] { return impl_->Prepare(client, request, lease); });
}

absl::Status Engine::Release(std::string_view client, std::string_view handle) {
  return CatchNoMemory([&] { return impl_->handles_.Remove(client, handle).status(); });
}

bool Engine::MustBuild(std::string_view client, std::string_view handle) {
  const auto found = impl_->handles_.Find(client, handle, impl_->now());
  return found.ok() && !impl_->plans_.cache().Holds((*found)->key);
}

ExecutionId Engine::Execute(const ExecuteRequest& request, Done done) {
  return impl_->Execute(request, std::move(done));
}

void Engine::Cancel(ExecutionId id) { impl_->Cancel(id); }
EngineStats Engine::Stats() const { return impl_->Stats(); }

}  // namespace tetrad
