// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What happens to a world's device, to its clock, and while it works.
#include <algorithm>

#include "engine/simulation/world.h"

namespace tetrad::simulation {
namespace {

constexpr Instant kMicrosecond = 1000;

}  // namespace

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

void World::Advance() {
  static constexpr Instant kSteps[] = {10 * kMicrosecond, kMillisecond, 8 * kMillisecond,
                                       25 * kMillisecond, 60 * kMillisecond};
  Instant to = now_ + 1 + random_.Below(random_.Pick(kSteps));
  // A launch is taken for lost only if it is.
  for (const auto& launch : device_->running()) {
    if (launch_lost_ || lost_) break;
    to = std::min(to, launched_at_[launch.ticket] + LaunchTimeout() - 1);
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
