// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/simulation/world.h"

#include <algorithm>
#include <utility>

#include "engine/support/status_macros.h"

namespace tetrad::simulation {
namespace {

constexpr Instant kLaunchTimeout = 300'000'000;  // 300 ms
constexpr Instant kHandleIdle = 50'000'000;
constexpr Instant kStepInterval = 40'000'000;
constexpr int kEvents = 200;

const Catalogue& SharedCatalogue() {
  static const Catalogue catalogue = MakeCatalogue("simulated");
  return catalogue;
}

}  // namespace

World::Limits World::LimitsOf(Profile profile) {
  switch (profile) {
    case Profile::kCalm:
      break;
    case Profile::kPressure:
      return {.memory_bytes = 24576,
              .staging_bytes = 5120,
              .chunk_bytes = 4096,
              .block_bytes = 8192,
              .plan_capacity = 2,
              .queue_depth = 3,
              .fault_one_in = 0,
              .meanwhile_one_in = 20};
    case Profile::kFaults:
      return {.memory_bytes = 1 << 18,
              .staging_bytes = 1 << 16,
              .chunk_bytes = 4096,
              .block_bytes = 1 << 14,
              .plan_capacity = 3,
              .queue_depth = 4,
              .fault_one_in = 12,
              .meanwhile_one_in = 20};
    case Profile::kChurn:
      return {.memory_bytes = 1 << 16,
              .staging_bytes = 1 << 14,
              .chunk_bytes = 2048,
              .block_bytes = 1 << 14,
              .plan_capacity = 2,
              .queue_depth = 5,
              .fault_one_in = 100,
              .meanwhile_one_in = 6};
  }
  return {.memory_bytes = 1 << 20,
          .staging_bytes = 1 << 18,
          .chunk_bytes = 8192,
          .block_bytes = 1 << 16,
          .plan_capacity = 3,
          .queue_depth = 8,
          .fault_one_in = 0,
          .meanwhile_one_in = 40};
}

World::World(uint64_t seed, Profile profile, Trace& trace, Coverage& coverage)
    : random_(seed),
      trace_(trace),
      coverage_(coverage),
      profile_(profile),
      limits_(LimitsOf(profile)),
      spurious_(random_.OneIn(2)),
      catalogue_(SharedCatalogue()) {
  EngineOptions options;
  options.plan_capacity = limits_.plan_capacity;
  options.max_plan_handles = 8;
  options.staging_bytes = limits_.staging_bytes;
  options.queue_depth = limits_.queue_depth;
  options.pool_chunk_bytes = limits_.chunk_bytes;
  options.launch_timeout = absl::Nanoseconds(kLaunchTimeout);
  options.leases = {.grace = absl::Milliseconds(20),
                    .handle_idle = absl::Nanoseconds(kHandleIdle),
                    .max_leases = 5,
                    .client_blocks = 5,
                    .client_block_bytes = limits_.block_bytes};
  options.weights.max_versions = 6;
  options.on_device_lost = [this](const absl::Status&) {
    lost_ = true;
    device_->Abandon();
    coverage_.Count(device_->lost() ? Seen::kDeviceLost : Seen::kTimedOut);
    Promise(Pending() == 0, "every request has ended when the loss of the device is told");
  };
  engine_ = *Engine::CreateStepped(
      [&](std::function<void()> wake) -> absl::StatusOr<std::unique_ptr<Device>> {
        auto device = std::make_unique<SimulatedDevice>(
            SimulatedDevice::Options{.memory_bytes = limits_.memory_bytes,
                                     .lanes = static_cast<int32_t>(1 + random_.Below(3)),
                                     .max_in_flight = static_cast<int32_t>(1 + random_.Below(4))},
            SimulatedDevice::World{
                .before = [this](Call call) { return BeforeCall(call); },
                .misuse = [this](std::string what) { misuse_.push_back(std::move(what)); },
                .handed_over = [this](const auto& hand_over) { OnHandOver(hand_over); },
                .wake = std::move(wake)});
        device_ = device.get();
        return device;
      },
      options,
      {.clock = [this] { return now_; },
       .wake_step = [this] { step_woken_ = true; },
       .wake_housekeep = [this] { housekeep_woken_ = true; },
       .launch_in_execute = random_.OneIn(2),
       .step_interval_ns = random_.OneIn(2) ? kNever : kStepInterval});
}

World::~World() = default;

void World::Promise(bool kept, std::string_view promise, int64_t detail) {
  if (!kept) trace_.Fail(absl::StrCat(std::string(promise), " (", detail, ")"));
}

int64_t World::Pending() const {
  return std::count_if(requests_.begin(), requests_.end(),
                       [](const auto& request) { return request->pending(); });
}

void World::Event() {
  using Do = void (World::*)();
  struct Choice {
    Do act;
    int weight[4];  // by profile
  };
  static constexpr Choice kChoices[] = {
      {&World::Attach, {2, 2, 2, 5}},
      {&World::Resume, {1, 1, 1, 4}},
      {&World::Detach, {1, 1, 1, 4}},
      {&World::EndLease, {1, 1, 1, 3}},
      {&World::Allocate, {6, 9, 6, 8}},
      {&World::WriteBlock, {4, 4, 4, 4}},
      {&World::ReadBlock, {3, 4, 4, 4}},
      {&World::FreeBlock, {2, 5, 2, 5}},
      {&World::ListBlocks, {1, 1, 1, 1}},
      {&World::UseStaleName, {2, 2, 2, 2}},
      {&World::Prepare, {4, 4, 4, 6}},
      {&World::Release, {1, 1, 1, 2}},
      {&World::ExecuteSome, {30, 30, 30, 24}},
      {&World::Cancel, {3, 3, 3, 3}},
      {&World::ReleaseHeld, {4, 6, 4, 4}},
      {&World::Register, {3, 4, 4, 7}},
      {&World::BeginUpload, {1, 1, 1, 1}},
      {&World::FinishUpload, {1, 1, 1, 1}},
      {&World::Drop, {1, 1, 1, 4}},
      {&World::CompleteLaunch, {16, 16, 16, 16}},
      {&World::LoseLaunch, {0, 0, 1, 0}},
      {&World::LoseDevice, {0, 0, 1, 0}},
      {&World::Advance, {6, 6, 8, 10}},
      {&World::Step, {16, 16, 16, 16}},
      {&World::Housekeep, {4, 4, 4, 5}},
  };
  const size_t profile = static_cast<size_t>(profile_);
  int64_t total = 0;
  for (const Choice& choice : kChoices) total += choice.weight[profile];
  int64_t draw = random_.Below(total);
  for (const Choice& choice : kChoices) {
    draw -= choice.weight[profile];
    if (draw >= 0) continue;
    // Who drives the engine does so when it asks.
    const bool step = choice.act == &World::Step, housekeep = choice.act == &World::Housekeep;
    if (step && !spurious_ && !step_woken_ && step_due_ > now_) return;
    if (housekeep && !spurious_ && !housekeep_woken_ && housekeep_due_ > now_) return;
    (this->*choice.act)();
    return;
  }
}

// When housekeeping has something to do at the latest.
Instant World::HousekeepDue() const {
  Instant due = kNever;
  for (const Lease& lease : leases_) {
    if (!lease.ended) due = std::min(due, lease.expiry);
  }
  for (const Handle& handle : handles_) {
    if (handle.live && !handle.lease) due = std::min(due, handle.used + kHandleIdle);
  }
  return due;
}

Instant World::StepDue() const {
  Instant due = kNever;
  for (const auto& request : requests_) {
    if (request->pending() && request->tag != 0 && !request->handed_over)
      due = std::min(due, request->deadline);
  }
  return due;
}

void World::CheckMisuse() {
  for (const std::string& what : misuse_) {
    // An engine that took its device for lost does not know what it still does.
    Promise(lost_ && what.starts_with("unbind"), what);
  }
  misuse_.clear();
}

void World::Settle() {
  CheckMisuse();
  Promise(housekeep_woken_ || housekeep_due_ <= HousekeepDue(), "housekeeping is woken in time",
          housekeep_due_ - HousekeepDue());
  Promise(step_woken_ || step_due_ <= StepDue() || lossy(), "the next step is woken in time",
          step_due_ - StepDue());
  const EngineStats stats = engine_->Stats();
  const auto count = [](const auto& list, const auto& is) {
    return static_cast<int64_t>(std::count_if(list.begin(), list.end(), is));
  };
  Promise(stats.leases.leases == count(leases_, [](const Lease& l) { return !l.ended; }),
          "leases counted", stats.leases.leases);
  Promise(stats.plan_handles == count(handles_, [](const Handle& h) { return h.live; }),
          "plan handles counted", stats.plan_handles);
  Promise(stats.blocks == count(blocks_, [](const Block& b) { return b.named; }), "blocks counted",
          stats.blocks);
  Promise(stats.weights_versions == static_cast<int64_t>(weights_.size() + uploads_.size()),
          "weights counted", stats.weights_versions);
  Promise(stats.in_flight <= Pending(), "launches in flight are those not answered",
          stats.in_flight);
  Promise(stats.queued <= limits_.queue_depth, "queue_depth kept", stats.queued);
  Promise(stats.staging_bytes <= limits_.staging_bytes, "staging_bytes kept", stats.staging_bytes);
  Promise(stats.plans_cached <= limits_.plan_capacity, "plan_capacity kept", stats.plans_cached);
  Promise(lost_ || stats.memory.allocated_bytes == stats.pool.reserved_bytes,
          "the pool knows what it took from the device", stats.pool.reserved_bytes);
}

void World::Step() {
  trace_.Add(now_, "step");
  stepping_ = true;
  step_woken_ = disturbed_ = false;
  step_due_ = engine_->Step();
  stepping_ = false;
  if (disturbed_) return;
  for (const auto& request : requests_) {
    if (!request->pending() || request->tag == 0 || request->handed_over) continue;
    Promise(request->deadline > now_, "a queued request ends at its deadline");
    Promise(!request->cancelled, "a cancelled request that is queued ends at the next step");
    Promise(!closed_, "queued requests end at the step after Close()");
  }
  // A callback may have asked again, and what became of that is told by the
  // next step, which then was asked for.
  const int64_t in_flight = engine_->Stats().in_flight;
  Promise(step_woken_ ? in_flight <= Pending() : in_flight == Pending(),
          "what is not in flight after a step was answered", in_flight);
}

void World::Housekeep() {
  trace_.Add(now_, "housekeep");
  for (size_t i = 0; i < leases_.size(); ++i) {
    if (leases_[i].ended || leases_[i].expiry > now_) continue;
    EndLeaseInModel(i);
    coverage_.Count(Seen::kLeaseExpired);
  }
  for (Handle& handle : handles_) {
    if (!handle.live || handle.lease || handle.used + kHandleIdle > now_) continue;
    handle.live = false;
    coverage_.Count(Seen::kHandleExpired);
  }
  housekeep_woken_ = false;
  housekeep_due_ = engine_->Housekeep();
  // What came meanwhile, from within a call of the device, woke it again.
  Promise(housekeep_woken_ || housekeep_due_ == HousekeepDue(), "housekeeping knows when it is due",
          housekeep_due_ - HousekeepDue());
}

void World::Run() {
  for (int i = 0; i < 4; ++i) Register();
  for (int i = 0; i < 2; ++i) Attach();
  for (int i = 0; i < kEvents && !trace_.failed(); ++i) {
    Event();
    Settle();
    if (random_.OneIn(8)) Quiet();
    if (i > kEvents / 2 && random_.OneIn(1000)) Close();
  }
  if (!trace_.failed()) End();
  if (trace_.failed()) {
    // What was found may have left the engine in a state it cannot end in.
    for (Held& held : held_) new Held(std::move(held));
    (void)engine_.release();
    return;
  }
  engine_.reset();
  CheckMisuse();
}

}  // namespace tetrad::simulation
