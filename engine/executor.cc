// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/executor.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "engine/support/status_macros.h"

namespace tetrad {

void Executor::List::Append(Launch* launch) {
  launch->previous_ = tail;
  launch->next_ = nullptr;
  (tail != nullptr ? tail->next_ : head) = launch;
  tail = launch;
}

void Executor::List::Remove(Launch* launch) {
  (launch->previous_ != nullptr ? launch->previous_->next_ : head) = launch->next_;
  (launch->next_ != nullptr ? launch->next_->previous_ : tail) = launch->previous_;
  launch->next_ = launch->previous_ = nullptr;
}

Executor::Executor(Device& device, int64_t queue_depth, Clock clock)
    : device_(device), queue_depth_(queue_depth), clock_(clock) {
  TETRAD_CHECK(device.limits().max_in_flight > 0);
  const size_t slots = static_cast<size_t>(device.limits().max_in_flight);
  slots_.resize(slots);
  slot_uses_.resize(slots);
  completions_.resize(slots);
  free_slots_.reserve(slots);
  for (size_t i = slots; i > 0; --i) free_slots_.push_back(static_cast<uint32_t>(i - 1));
}

absl::Status Executor::AdmissibleLocked() const {
  if (closed_) return absl::UnavailableError("the engine is shutting down");
  if (queued_ < queue_depth_) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("queue_depth: ", queued_, " launches are queued, the limit"));
}

absl::Status Executor::Admissible() const {
  std::lock_guard lock(mutex_);
  return AdmissibleLocked();
}

absl::Status Executor::Submit(Launch* launch) {
  std::lock_guard lock(mutex_);
  TETRAD_CHECK(launch->state_ == Launch::State::kIdle);
  TETRAD_RETURN_IF_ERROR(AdmissibleLocked());
  launch->submitted = clock_();
  launch->cancelled_ = false;
  launch->state_ = Launch::State::kQueued;
  queues_[static_cast<size_t>(launch->priority)].Append(launch);
  ++queued_;
  return absl::OkStatus();
}

void Executor::Cancel(Launch* launch) {
  std::lock_guard lock(mutex_);
  if (launch->state_ != Launch::State::kIdle) launch->cancelled_ = true;
}

Instant Executor::Step() {
  List ended;
  Instant next_deadline = kNever;
  {
    std::lock_guard lock(mutex_);
    Collect(ended);
    next_deadline = EndQueued(clock_(), ended);
    FillDevice(ended);
  }
  // Outside the lock: `done` may submit again, or destroy the launch.
  while (Launch* launch = ended.head) {
    ended.Remove(launch);
    launch->done(launch);
  }
  return next_deadline;
}

Instant Executor::EndQueued(Instant now, List& ended) {
  Instant next_deadline = kNever;
  for (List& queue : queues_) {
    for (Launch* launch = queue.head; launch != nullptr;) {
      Launch* const next = launch->next_;
      const bool late = launch->deadline <= now;
      if (closed_ || launch->cancelled_ || late) {
        launch->outcome = launch->cancelled_ ? LaunchOutcome::kCancelled
                          : late             ? LaunchOutcome::kDeadlineExceeded
                                             : LaunchOutcome::kShutDown;
        launch->completed = now;
        launch->state_ = Launch::State::kIdle;
        queue.Remove(launch);
        --queued_;
        ended.Append(launch);
      } else {
        next_deadline = std::min(next_deadline, launch->deadline);
      }
      launch = next;
    }
  }
  return next_deadline;
}

void Executor::FillDevice(List& ended) {
  for (List& queue : queues_) {
    while (queue.head != nullptr && !free_slots_.empty()) {
      Launch* const launch = queue.head;
      const uint32_t slot = free_slots_.back();
      const uint64_t ticket = uint64_t{++slot_uses_[slot]} << 32 | slot;
      launch->launching = clock_();
      const absl::Status status = device_.Launch(launch->lane, launch->binding, ticket);
      // A device that is full for now is asked again after its next completion.
      if (absl::IsResourceExhausted(status) && free_slots_.size() < slots_.size()) return;
      queue.Remove(launch);
      --queued_;
      launch->launched = clock_();
      if (!status.ok()) {
        launch->outcome = LaunchOutcome::kRefused;
        launch->code = status.code();
        launch->completed = launch->launched;
        launch->state_ = Launch::State::kIdle;
        ended.Append(launch);
        continue;
      }
      free_slots_.pop_back();
      launch->state_ = Launch::State::kOnDevice;
      launch->slot_ = slot;
      slots_[slot] = launch;
    }
  }
}

void Executor::Collect(List& ended) {
  const size_t count = device_.Poll(completions_);
  if (count == 0) return;
  const Instant now = clock_();
  for (size_t i = 0; i < count; ++i) {
    const Completion& completion = completions_[i];
    const uint32_t slot = static_cast<uint32_t>(completion.ticket);
    TETRAD_CHECK(slot < slots_.size() && slots_[slot] != nullptr &&
                 slot_uses_[slot] == completion.ticket >> 32);
    Launch* const launch = slots_[slot];
    slots_[slot] = nullptr;
    free_slots_.push_back(slot);
    launch->completed = now;
    launch->device_ns = completion.device_ns;
    launch->error_word = completion.error_word;
    launch->code = completion.code;
    launch->outcome = completion.code != absl::StatusCode::kOk ? LaunchOutcome::kFailed
                      : launch->cancelled_                     ? LaunchOutcome::kCancelled
                      : launch->deadline <= now                ? LaunchOutcome::kDeadlineExceeded
                                                               : LaunchOutcome::kDone;
    launch->state_ = Launch::State::kIdle;
    ended.Append(launch);
  }
}

void Executor::Close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
}

bool Executor::idle() const {
  std::lock_guard lock(mutex_);
  return queued_ == 0 && free_slots_.size() == slots_.size();
}

ExecutorStats Executor::stats() const {
  std::lock_guard lock(mutex_);
  return {queued_, static_cast<int64_t>(slots_.size() - free_slots_.size())};
}

}  // namespace tetrad
