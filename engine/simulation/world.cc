// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/simulation/world.h"

#include <algorithm>
#include <utility>

#include "engine/support/status_macros.h"

namespace tetrad::simulation {
namespace {

constexpr Instant kMicrosecond = 1000;
constexpr Instant kMillisecond = 1'000'000;
constexpr Instant kLaunchTimeout = 300 * kMillisecond;
constexpr Instant kHandleIdle = 50 * kMillisecond;
constexpr int kEvents = 200;

const Catalogue& SharedCatalogue() {
  static const Catalogue catalogue = MakeCatalogue("simulated");
  return catalogue;
}

}  // namespace

World::World(uint64_t seed, Profile profile, Trace& trace, Coverage& coverage)
    : random_(seed),
      trace_(trace),
      coverage_(coverage),
      profile_(profile),
      limits_(profile == Profile::kCalm       ? Limits{1 << 20, 1 << 18, 8192, 1 << 16, 3, 8, 0, 40}
              : profile == Profile::kPressure ? Limits{24576, 5120, 4096, 8192, 2, 3, 0, 20}
              : profile == Profile::kFaults
                  ? Limits{1 << 18, 1 << 16, 4096, 1 << 14, 3, 4, 12, 20}
                  : Limits{1 << 16, 1 << 14, 2048, 1 << 14, 2, 5, 100, 6}),
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
       .wake_housekeep = [this] { housekeep_woken_ = true; }});
}

World::~World() = default;

void World::Promise(bool kept, std::string_view promise, int64_t detail) {
  if (!kept) trace_.Fail(absl::StrCat(std::string(promise), " (", detail, ")"));
}

int64_t World::Pending() const {
  return std::count_if(requests_.begin(), requests_.end(),
                       [](const auto& request) { return request->pending(); });
}

absl::Status World::BeforeCall(Call call) {
  if (engine_ == nullptr) return absl::OkStatus();
  Meanwhile(call);
  if (!faults_ || !random_.OneIn(limits_.fault_one_in)) return absl::OkStatus();
  ++strikes_;
  trace_.Add(now_, "  fault in call", call);
  if (call == Call::kAllocate || (call == Call::kLaunch && random_.OneIn(2))) {
    return absl::ResourceExhaustedError("injected");
  }
  return absl::InternalError("injected");
}

// What other threads do while one is inside the device. No lock of the engine
// is held there, but where a launch is handed over and memory is given back.
void World::Meanwhile(Call call) {
  if (call == Call::kLaunch || call == Call::kFree || depth_ > 0 || draining_) return;
  if (!random_.OneIn(limits_.meanwhile_one_in)) return;
  ++depth_;
  ++meanwhile_;
  coverage_.Count(Seen::kMeanwhile);
  trace_.Add(now_, "  meanwhile, in call", call);
  // Who fetches a chunk must not wait for another who does.
  const bool may_allocate = call != Call::kAllocate;
  switch (random_.Below(8)) {
    case 0:
      EndLease();
      break;
    case 1:
      FreeBlock();
      break;
    case 2:
      Drop();
      break;
    case 3:
      Cancel();
      break;
    case 4:
      Release();
      break;
    case 5:
      Housekeep();
      break;
    case 6:
      if (may_allocate && !stepping_) Step();
      break;
    case 7:
      if (random_.OneIn(10))
        Close();
      else if (may_allocate)
        Execute(false);
      break;
  }
  --depth_;
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
  const int64_t in_flight = engine_->Stats().in_flight;
  Promise(in_flight == Pending(), "what is not in flight after a step was answered", in_flight);
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
  Promise(housekeep_due_ == HousekeepDue(), "housekeeping knows when it is due",
          housekeep_due_ - HousekeepDue());
}

void World::Quiet() {
  if (Pending() > 0 || !held_.empty() || lossy()) return;
  for (int i = 0; i < 8 && housekeep_woken_; ++i) Housekeep();
  int64_t block_bytes = 0;
  for (const Block& block : blocks_) {
    if (block.named) block_bytes += static_cast<int64_t>(block.bytes.size());
  }
  const EngineStats stats = engine_->Stats();
  Promise(stats.in_flight == 0, "nothing is in flight when all was answered", stats.in_flight);
  Promise(stats.reclaimable == 0, "what was let go of comes back", stats.reclaimable);
  Promise(stats.pool.wholes == static_cast<int64_t>(weights_.size() + uploads_.size()),
          "memory of weights without a name comes back", stats.pool.wholes);
  Promise(stats.block_bytes == block_bytes, "memory of freed blocks comes back", stats.block_bytes);
  coverage_.Count(Seen::kQuietAndBalanced);
}

void World::Drain() {
  for (int i = 0; i < 2000 && !trace_.failed(); ++i) {
    if (step_woken_ || step_due_ <= now_) {
      Step();
    } else if (std::any_of(device_->running().begin(), device_->running().end(),
                           [&](const auto& launch) {
                             return device_->CanComplete(&launch - device_->running().data());
                           })) {
      CompleteLaunch();
    } else if (Pending() == 0) {
      return;
    } else {
      Promise(step_due_ != kNever, "no request waits for ever");
      now_ = std::max(now_, step_due_);
    }
  }
}

void World::End() {
  draining_ = true;
  faults_ = false;
  if (random_.OneIn(3)) Close();
  while (!held_.empty()) ReleaseHeld();
  Drain();
  if (!trace_.failed()) Quiet();
  for (size_t i = 0; i < leases_.size(); ++i) {
    if (leases_[i].ended) continue;
    Promise(engine_->EndLease(absl::StrCat("client", leases_[i].client), leases_[i].name).ok(),
            "a lease can be ended");
    EndLeaseInModel(i);
  }
  for (Handle& handle : handles_) {
    if (!std::exchange(handle.live, false)) continue;
    Promise(engine_->Release(absl::StrCat("client", handle.client), handle.name).ok(),
            "a handle can be released");
  }
  while (!uploads_.empty()) Drop(uploads_.back().name);
  while (!weights_.empty()) Drop(std::string(weights_.begin()->first));
  if (trace_.failed()) return;
  Settle();
  Quiet();
  const EngineStats stats = engine_->Stats();
  if (!lossy()) {
    Promise(stats.block_bytes == 0 && stats.blocks == 0, "no block is left", stats.block_bytes);
    Promise(stats.pool.whole_bytes == 0, "no weights are left", stats.pool.whole_bytes);
    Promise(stats.pool.block_bytes == stats.staging_bytes, "only staging is left",
            stats.pool.block_bytes - stats.staging_bytes);
  }
  if (stats.plan_evictions > 0) coverage_.Count(Seen::kEvicted);
  if (!closed_) Close();
  Execute(false);
  Drain();
  int64_t launches = 0;
  for (const int64_t outcome : engine_->Stats().outcomes) launches += outcome;
  Promise(launches == order_, "each launch has one outcome", launches - order_);
  Promise(engine_->Stats().outcomes[static_cast<size_t>(LaunchOutcome::kDone)] == done_launches_,
          "what was answered is what was done");
  for (const auto& request : requests_) {
    Promise(request->answers == 1, "each request is answered once", request->answers);
  }
  Promise(engine_->idle(), "the engine is idle at its end");
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

void World::Advance() {
  static constexpr Instant kSteps[] = {10 * kMicrosecond, kMillisecond, 8 * kMillisecond,
                                       25 * kMillisecond, 60 * kMillisecond};
  Instant to = now_ + 1 + random_.Below(random_.Pick(kSteps));
  // A launch is taken for lost only if it is.
  for (const auto& launch : device_->running()) {
    if (launch_lost_ || lost_) break;
    to = std::min(to, launched_at_[launch.ticket] + kLaunchTimeout - 1);
  }
  now_ = std::max(now_, to);
  trace_.Add(now_, "time passes");
}

void World::CompleteLaunch() {
  std::vector<size_t> able;
  for (size_t i = 0; i < device_->running().size(); ++i) {
    if (device_->CanComplete(i)) able.push_back(i);
  }
  if (able.empty()) return;
  const size_t index = random_.Pick(able);
  const bool fails = limits_.fault_one_in > 0 && random_.OneIn(8);
  trace_.Add(now_, "launch completes", device_->running()[index].ticket, fails);
  if (const auto at = tickets_.find(device_->running()[index].ticket);
      at != tickets_.end() && !device_->lost()) {
    (fails ? requests_[at->second]->failed : requests_[at->second]->completed) = true;
  }
  device_->Complete(index, fails ? absl::StatusCode::kInternal : absl::StatusCode::kOk);
}

void World::LoseLaunch() {
  if (device_->running().empty() || !random_.OneIn(8)) return;
  device_->Lose(
      static_cast<size_t>(random_.Below(static_cast<int64_t>(device_->running().size()))));
  launch_lost_ = true;
  trace_.Add(now_, "launch is lost");
  coverage_.Count(Seen::kLaunchLost);
}

void World::LoseDevice() {
  if (!random_.OneIn(10)) return;
  trace_.Add(now_, "device is lost");
  device_->LoseDevice();
}

void World::Close() {
  trace_.Add(now_, "close");
  closed_ = disturbed_ = true;
  engine_->Close();
  step_woken_ = true;  // as the driver does who closes
}

}  // namespace tetrad::simulation
