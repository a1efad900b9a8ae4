// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/executor.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"
#include "engine/support/no_memory.h"
#include "engine/support/status_macros.h"

namespace tetrad {

Executor::Executor(Device& device, const Options& options, Clock clock)
    : device_(device),
      options_(options),
      clock_(std::move(clock)),
      queue_(static_cast<size_t>(options.queue_depth)),
      deadlines_(static_cast<size_t>(options.queue_depth)) {
  TETRAD_CHECK(device.limits().max_in_flight > 0);
  const size_t slots = static_cast<size_t>(device.limits().max_in_flight);
  slots_.resize(slots);
  slot_uses_.resize(slots);
  completions_.resize(slots);
  free_slots_.reserve(slots);
  for (size_t i = slots; i > 0; --i) free_slots_.push_back(static_cast<uint32_t>(i - 1));
}

absl::Status Executor::AdmissibleLocked() const {
  if (!lost_.ok()) {
    return ReasonError(Reason::kDeviceLost, "the device was lost, the daemon restarts");
  }
  if (closed_) return ReasonError(Reason::kDraining, "the engine is shutting down");
  if (queue_.size() < options_.queue_depth) return absl::OkStatus();
  return WithDetail(absl::ResourceExhaustedError(absl::StrCat("queue_depth: ", queue_.size(),
                                                              " launches are queued, the limit")),
                    {.reason = Reason::kQueueFull, .retry_delay = UntilNextCompletion()});
}

// The device then has room for what is at the head of a queue. A launch that is
// late may be so for long; and to come back at once helps nobody.
absl::Duration Executor::UntilNextCompletion() const {
  const Launch* const oldest = on_device_.head();
  if (oldest == nullptr) return absl::ZeroDuration();
  const int64_t ran = clock_() - std::max(oldest->launching, progress_);
  constexpr int64_t kLeastNs = 1'000'000;
  return absl::Nanoseconds(
      std::max({oldest->predicted_ns - ran, oldest->predicted_ns / 8, kLeastNs}));
}

absl::Status Executor::Admissible() const {
  std::lock_guard lock(mutex_);
  return AdmissibleLocked();
}

absl::StatusOr<bool> Executor::Submit(Launch* launch) {
  std::lock_guard lock(mutex_);
  TETRAD_CHECK(launch->state_ == Launch::State::kIdle);
  TETRAD_RETURN_IF_ERROR(AdmissibleLocked());
  launch->submitted = clock_();
  launch->cancelled_ = false;
  launch->state_ = Launch::State::kQueued;
  queue_.Append(launch);
  if (launch->deadline != kNever) deadlines_.Insert(launch);
  if (!options_.launch_at_submit) return true;
  EndLate(launch->submitted);  // the step that should have may be late itself
  // What lacks memory to say why it failed is left to Step().
  const absl::Status filled = CatchNoMemory([this] {
    FillDevice();
    return absl::OkStatus();
  });
  return !filled.ok() || !ended_.empty() || Due() < next_step_;
}

void Executor::Cancel(Launch* launch) {
  std::lock_guard lock(mutex_);
  if (launch->state_ == Launch::State::kQueued) {
    EndQueued(launch, LaunchOutcome::kCancelled, clock_());
  } else if (launch->state_ == Launch::State::kOnDevice) {
    launch->cancelled_ = true;
  }
}

Instant Executor::Step() {
  LaunchList ended;
  Instant due;
  {
    std::lock_guard lock(mutex_);
    Collect();
    const Instant now = clock_();
    EndLate(now);
    CheckDevice(now);
    FillDevice();
    due = next_step_ = std::min(Due(), After(now, options_.step_interval_ns));
    std::swap(ended, ended_);
  }
  // Outside the lock: `done` may submit again, or destroy the launch.
  while (Launch* launch = ended.head()) {
    ended.Remove(launch);
    launch->done(launch);
  }
  return due;
}

void Executor::EndQueued(Launch* launch, LaunchOutcome outcome, Instant now) {
  queue_.Remove(launch);
  if (launch->deadline != kNever) deadlines_.Remove(launch);
  launch->outcome = outcome;
  launch->completed = now;
  launch->state_ = Launch::State::kIdle;
  ended_.Append(launch);
}

void Executor::EndOnDevice(Launch* launch, LaunchOutcome outcome, Instant now) {
  on_device_.Remove(launch);
  --on_device_count_;
  on_device_predicted_ns_ -= launch->predicted_ns;
  slots_[launch->slot_] = nullptr;
  free_slots_.push_back(launch->slot_);
  launch->outcome = outcome;
  launch->completed = now;
  launch->state_ = Launch::State::kIdle;
  ended_.Append(launch);
}

void Executor::EndLate(Instant now) {
  while (Launch* const earliest = deadlines_.first()) {
    if (earliest->deadline > now) return;
    EndQueued(earliest, LaunchOutcome::kDeadlineExceeded, now);
  }
}

void Executor::EndAllQueued(LaunchOutcome outcome, Instant now) {
  while (Launch* const launch = queue_.front()) EndQueued(launch, outcome, now);
}

Instant Executor::TimeLimit() const {
  const Launch* const oldest = on_device_.head();
  if (oldest == nullptr || options_.launch_timeout_ns == kNever) return kNever;
  // It may have waited on the device for those before it.
  const Instant began = std::max(oldest->launching, progress_);
  const int64_t overrun = std::min(oldest->predicted_ns, kNever / kOverrun) * kOverrun;
  return After(After(began, options_.launch_timeout_ns), overrun);
}

Instant Executor::Due() const {
  const Launch* const earliest = deadlines_.first();
  return std::min(earliest != nullptr ? earliest->deadline : kNever, TimeLimit());
}

void Executor::CheckDevice(Instant now) {
  if (!lost_.ok()) return;
  lost_ = device_.health();
  if (const Instant limit = TimeLimit(); lost_.ok() && limit <= now) {
    lost_ = absl::InternalError(
        absl::StrCat("launch_timeout: no completion came for ",
                     now - std::max(on_device_.head()->launching, progress_), " ns, the limit is ",
                     options_.launch_timeout_ns, " ns beyond ", kOverrun, " times the prediction"));
  }
  if (lost_.ok()) return;
  while (on_device_.head() != nullptr)
    EndOnDevice(on_device_.head(), LaunchOutcome::kDeviceLost, now);
  EndAllQueued(LaunchOutcome::kDeviceLost, now);
}

bool Executor::WantsMore(const Launch& launch) const {
  if (free_slots_.empty()) return false;
  return on_device_count_ < 2 ||
         launch.predicted_ns <= options_.run_ahead_ns - on_device_predicted_ns_;
}

void Executor::FillDevice() {
  while (Launch* const launch = queue_.front()) {
    if (!WantsMore(*launch)) return;
    const uint32_t slot = free_slots_.back();
    const uint64_t ticket = uint64_t{++slot_uses_[slot]} << 32 | slot;
    launch->launching = clock_();
    const absl::Status status = device_.Launch(launch->lane, launch->binding, ticket);
    // A device that is full for now is asked again after its next completion.
    if (absl::IsResourceExhausted(status) && on_device_count_ > 0) return;
    launch->launched = clock_();
    if (!status.ok()) {
      // One that a lost device refused ends like the others it will not run.
      CheckDevice(launch->launched);
      if (!lost_.ok()) return;
      launch->code = status.code();
      EndQueued(launch, LaunchOutcome::kRefused, launch->launched);
      continue;
    }
    queue_.PopFront();
    if (launch->deadline != kNever) deadlines_.Remove(launch);
    free_slots_.pop_back();
    launch->state_ = Launch::State::kOnDevice;
    launch->slot_ = slot;
    slots_[slot] = launch;
    on_device_.Append(launch);
    ++on_device_count_;
    on_device_predicted_ns_ += launch->predicted_ns;
  }
}

void Executor::Collect() {
  const size_t count = device_.Poll(completions_);
  // What was given up may still complete, and nobody waits for it.
  if (count == 0 || !lost_.ok()) return;
  const Instant now = clock_();
  progress_ = now;
  for (size_t i = 0; i < count; ++i) {
    const Completion& completion = completions_[i];
    const uint32_t slot = static_cast<uint32_t>(completion.ticket);
    TETRAD_CHECK(slot < slots_.size() && slots_[slot] != nullptr &&
                 slot_uses_[slot] == completion.ticket >> 32);
    Launch* const launch = slots_[slot];
    launch->device_ns = completion.device_ns;
    launch->error_word = completion.error_word;
    launch->code = completion.code;
    EndOnDevice(launch,
                completion.code != absl::StatusCode::kOk ? LaunchOutcome::kFailed
                : launch->cancelled_                     ? LaunchOutcome::kCancelled
                : launch->deadline <= now                ? LaunchOutcome::kDeadlineExceeded
                                                         : LaunchOutcome::kDone,
                now);
  }
}

void Executor::Close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  EndAllQueued(LaunchOutcome::kShutDown, clock_());
}

bool Executor::idle() const {
  std::lock_guard lock(mutex_);
  return queue_.size() == 0 && on_device_count_ == 0 && ended_.empty();
}

absl::Status Executor::lost() const {
  std::lock_guard lock(mutex_);
  return lost_;
}

ExecutorStats Executor::stats() const {
  std::lock_guard lock(mutex_);
  return {queue_.size(), on_device_count_};
}

}  // namespace tetrad
