// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/faulty_device.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/support/status_macros.h"

namespace tetrad {

std::string_view Name(Call call) {
  static constexpr std::array<std::string_view, kCalls> kNames = {
      "Allocate", "Free",        "Seal",      "Export", "Import", "Write",  "Read",
      "Clear",    "PackWeights", "MakeReady", "Bind",   "Rebind", "Unbind", "Launch"};
  return kNames[static_cast<size_t>(call)];
}

FaultyDevice::FaultyDevice(std::function<void()> wake, Clock clock)
    : wake_(std::move(wake)), clock_(std::move(clock)) {}

absl::StatusOr<std::unique_ptr<FaultyDevice>> FaultyDevice::Create(const Make& make,
                                                                   std::function<void()> wake,
                                                                   Clock clock) {
  std::unique_ptr<FaultyDevice> device(new FaultyDevice(std::move(wake), std::move(clock)));
  TETRAD_ASSIGN_OR_RETURN(device->device_, make(device->wake_));
  device->under_way_.reserve(static_cast<size_t>(device->limits().max_in_flight));
  return device;
}

void FaultyDevice::FailNth(Call call, int64_t n, absl::Status status) {
  TETRAD_CHECK(n >= 1 && !status.ok());
  std::lock_guard lock(mutex_);
  CallFault& fault = faults_[static_cast<size_t>(call)];
  fault.fail_in = n;
  fault.probability = 0;
  fault.status = std::move(status);
  fired_ = false;
}

void FaultyDevice::FailRandomly(Call call, double probability, uint64_t seed, absl::Status status) {
  TETRAD_CHECK(probability >= 0 && probability <= 1 && !status.ok());
  std::lock_guard lock(mutex_);
  CallFault& fault = faults_[static_cast<size_t>(call)];
  fault.fail_in = 0;
  fault.probability = probability;
  fault.random = Random(seed);
  fault.status = std::move(status);
  fired_ = false;
}

void FaultyDevice::StopFailing() {
  std::lock_guard lock(mutex_);
  for (CallFault& fault : faults_) fault.fail_in = 0, fault.probability = 0;
}

bool FaultyDevice::fault_fired() const {
  std::lock_guard lock(mutex_);
  return fired_;
}

int64_t FaultyDevice::calls(Call call) const {
  std::lock_guard lock(mutex_);
  return faults_[static_cast<size_t>(call)].calls;
}

absl::Status FaultyDevice::Enter(Call call) const {
  std::lock_guard lock(mutex_);
  CallFault& fault = faults_[static_cast<size_t>(call)];
  ++fault.calls;
  bool fails = fault.fail_in > 0 && --fault.fail_in == 0;
  if (fault.probability > 0) {
    fails = static_cast<double>(fault.random.Next() >> 11) * 0x1p-53 < fault.probability;
  }
  if (!fails) return absl::OkStatus();
  fired_ = true;
  return fault.status;
}

void FaultyDevice::HoldCompletions() {
  std::lock_guard lock(mutex_);
  holding_ = true;
}

void FaultyDevice::ReleaseCompletions() {
  {
    std::lock_guard lock(mutex_);
    holding_ = false;
    for (UnderWay& launch : under_way_) launch.held = false;
  }
  wake_();
}

void FaultyDevice::DelayCompletions(int64_t ns) {
  TETRAD_CHECK(clock_ != nullptr && ns >= 0);
  std::lock_guard lock(mutex_);
  delay_ns_ = ns;
}

void FaultyDevice::ClockMoved() {
  bool due = false;
  {
    std::lock_guard lock(mutex_);
    for (UnderWay& launch : under_way_) {
      if (launch.due_ns == 0 || !Due(launch)) continue;
      launch.due_ns = 0;
      due = true;
    }
  }
  if (due) wake_();
}

void FaultyDevice::LoseCompletions(int64_t launches) {
  std::lock_guard lock(mutex_);
  to_lose_ = launches;
}

void FaultyDevice::FailLaunches(int64_t launches, absl::StatusCode code) {
  std::lock_guard lock(mutex_);
  to_fail_ = launches;
  fail_code_ = code;
}

void FaultyDevice::Break(absl::Status status) {
  TETRAD_CHECK(!status.ok());
  {
    std::lock_guard lock(mutex_);
    if (health_.ok()) health_ = std::move(status);
  }
  wake_();
}

absl::Status FaultyDevice::health() const {
  {
    std::lock_guard lock(mutex_);
    if (!health_.ok()) return health_;
  }
  return device_->health();
}

absl::StatusOr<Allocation> FaultyDevice::Allocate(int64_t bytes) {
  TETRAD_RETURN_IF_ERROR(Enter(Call::kAllocate));
  return device_->Allocate(bytes);
}

absl::Status FaultyDevice::Free(AllocationId id) {
  TETRAD_RETURN_IF_ERROR(Enter(Call::kFree));
  return device_->Free(id);
}

absl::Status FaultyDevice::Seal(AllocationId id) {
  TETRAD_RETURN_IF_ERROR(Enter(Call::kSeal));
  return device_->Seal(id);
}

absl::StatusOr<UniqueFd> FaultyDevice::Export(AllocationId id) {
  TETRAD_RETURN_IF_ERROR(Enter(Call::kExport));
  return device_->Export(id);
}

absl::StatusOr<Allocation> FaultyDevice::Import(UniqueFd fd, const AllocationIdentity& identity,
                                                int64_t bytes, bool writable) {
  TETRAD_RETURN_IF_ERROR(Enter(Call::kImport));
  return device_->Import(std::move(fd), identity, bytes, writable);
}

absl::Status FaultyDevice::Write(AllocationId id, int64_t offset, std::span<const std::byte> data) {
  TETRAD_RETURN_IF_ERROR(Enter(Call::kWrite));
  return device_->Write(id, offset, data);
}

absl::Status FaultyDevice::Fill(AllocationId id, int64_t offset, int64_t bytes, FillSource source) {
  TETRAD_RETURN_IF_ERROR(Enter(Call::kWrite));
  const int64_t most = piece_bytes_.load();
  if (most == 0) return device_->Fill(id, offset, bytes, source);
  for (int64_t done = 0; done < bytes; done += most) {
    TETRAD_RETURN_IF_ERROR(device_->Fill(id, offset + done, std::min(most, bytes - done), source));
  }
  return absl::OkStatus();
}

absl::Status FaultyDevice::MakeReady(const std::shared_ptr<const Plan>& plan, const BlockRef& b,
                                     const BlockRef& b_scales) {
  TETRAD_RETURN_IF_ERROR(Enter(Call::kMakeReady));
  return device_->MakeReady(plan, b, b_scales);
}

absl::Status FaultyDevice::Read(AllocationId id, int64_t offset, std::span<std::byte> data) const {
  TETRAD_RETURN_IF_ERROR(Enter(Call::kRead));
  return device_->Read(id, offset, data);
}

absl::Status FaultyDevice::Clear(AllocationId id, int64_t offset, int64_t bytes) {
  TETRAD_RETURN_IF_ERROR(Enter(Call::kClear));
  return device_->Clear(id, offset, bytes);
}

absl::Status FaultyDevice::PackWeights(const WeightsToPack& weights) {
  TETRAD_RETURN_IF_ERROR(Enter(Call::kPackWeights));
  return device_->PackWeights(weights);
}

absl::StatusOr<BindingId> FaultyDevice::Bind(std::shared_ptr<const Plan> plan,
                                             const OperandBlocks& operands) {
  TETRAD_RETURN_IF_ERROR(Enter(Call::kBind));
  return device_->Bind(std::move(plan), operands);
}

absl::Status FaultyDevice::CheckNotUnderWay(BindingId binding) const {
  // The device itself speaks for launches whose completions it still has.
  const bool late = std::any_of(under_way_.begin(), under_way_.end(), [&](const UnderWay& launch) {
    return launch.binding == binding && launch.late();
  });
  return late ? absl::FailedPreconditionError("binding: a launch uses it") : absl::OkStatus();
}

absl::Status FaultyDevice::Rebind(BindingId id, const OperandBlocks& operands) {
  TETRAD_RETURN_IF_ERROR(Enter(Call::kRebind));
  std::lock_guard lock(mutex_);  // no late launch may begin in between
  TETRAD_RETURN_IF_ERROR(CheckNotUnderWay(id));
  return device_->Rebind(id, operands);
}

absl::Status FaultyDevice::Unbind(BindingId id) {
  TETRAD_RETURN_IF_ERROR(Enter(Call::kUnbind));
  std::lock_guard lock(mutex_);
  TETRAD_RETURN_IF_ERROR(CheckNotUnderWay(id));
  return device_->Unbind(id);
}

absl::Status FaultyDevice::Launch(LaneId lane, BindingId binding, uint64_t ticket) {
  TETRAD_RETURN_IF_ERROR(Enter(Call::kLaunch));
  std::lock_guard lock(mutex_);  // held until the launch is noted: Poll() must know it
  if (!health_.ok()) return health_;
  // The device has room again for what was collected here and is not yet fetched.
  const bool late = std::any_of(under_way_.begin(), under_way_.end(),
                                [](const UnderWay& launch) { return launch.complete; });
  if (late && under_way_.size() >= static_cast<size_t>(limits().max_in_flight)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("max_in_flight: ", under_way_.size(), " launches are under way, the limit"));
  }
  TETRAD_RETURN_IF_ERROR(device_->Launch(lane, binding, ticket));
  UnderWay launch;
  launch.lane = lane;
  launch.binding = binding;
  launch.ticket = ticket;
  launch.held = holding_;
  launch.lost = to_lose_ > 0 && to_lose_-- > 0;
  if (to_fail_ > 0 && to_fail_-- > 0) launch.code = fail_code_;
  if (delay_ns_ > 0) launch.due_ns = clock_() + delay_ns_;
  under_way_.push_back(launch);
  return absl::OkStatus();
}

void FaultyDevice::Collect(size_t wanted) {
  // Nothing late: no more than the caller takes now, so that the rest stays the
  // device's to account for. Otherwise what is late must not hide the others.
  const bool late = std::any_of(under_way_.begin(), under_way_.end(), [](const UnderWay& launch) {
    return launch.late() || launch.complete;
  });
  size_t left = late ? under_way_.size() : wanted;
  Completion some[16];
  size_t count;
  for (; (count = device_->Poll(std::span(some).first(std::min<size_t>(left, 16)))) > 0;
       left -= count) {
    for (const Completion& completion : std::span(some, count)) {
      const auto launch =
          std::find_if(under_way_.begin(), under_way_.end(), [&](const UnderWay& candidate) {
            return !candidate.complete && candidate.ticket == completion.ticket;
          });
      TETRAD_CHECK(launch != under_way_.end());
      launch->complete = true;
      launch->completion = completion;
      if (launch->code != absl::StatusCode::kOk) launch->completion.code = launch->code;
    }
  }
}

size_t FaultyDevice::Poll(std::span<Completion> out) {
  std::lock_guard lock(mutex_);
  if (!health_.ok()) return 0;
  Collect(out.size());
  size_t count = 0;
  for (auto launch = under_way_.begin(); launch != under_way_.end() && count < out.size();) {
    // What is late keeps the rest of its lane waiting, as on a device.
    const bool behind = std::any_of(under_way_.begin(), launch, [&](const UnderWay& earlier) {
      return earlier.lane == launch->lane && !earlier.lost;
    });
    if (!launch->complete || launch->held || launch->lost || !Due(*launch) || behind) {
      ++launch;
      continue;
    }
    out[count++] = launch->completion;
    launch = under_way_.erase(launch);
  }
  return count;
}

}  // namespace tetrad
