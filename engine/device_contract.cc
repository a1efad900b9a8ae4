// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/device_contract.h"

#include <algorithm>
#include <chrono>

#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

constexpr auto kLost = std::chrono::seconds(30);

}  // namespace

void WakeCounter::Wake() {
  {
    std::lock_guard lock(mutex_);
    ++count_;
  }
  woken_.notify_all();
}

uint64_t WakeCounter::count() const {
  std::lock_guard lock(mutex_);
  return count_;
}

bool WakeCounter::WaitBeyond(uint64_t seen) const {
  std::unique_lock lock(mutex_);
  return woken_.wait_for(lock, kLost, [&] { return count_ > seen; });
}

void DeviceContract::Make(const ContractOptions& options) {
  device_.reset();
  wakes_ = std::make_shared<WakeCounter>();
  auto device = GetParam().make(options, [wakes = wakes_] { wakes->Wake(); });
  TETRAD_CHECK(device.ok());
  device_ = *std::move(device);
}

Allocation DeviceContract::Allocate(int64_t bytes) {
  auto allocation = device_->Allocate(bytes);
  EXPECT_TRUE(allocation.ok()) << allocation.status();
  return allocation.ok() ? *allocation : Allocation{};
}

std::vector<std::byte> DeviceContract::Read(AllocationId id, int64_t offset, size_t bytes) {
  std::vector<std::byte> data(bytes);
  const absl::Status status = device_->Read(id, offset, data);
  EXPECT_TRUE(status.ok()) << status;
  return data;
}

absl::Status DeviceContract::WriteByte(AllocationId id, int64_t offset, uint8_t value) {
  return device_->Write(id, offset, std::as_bytes(std::span(&value, 1)));
}

int64_t DeviceContract::Granule() {
  const Allocation least = Allocate(1);
  EXPECT_TRUE(device_->Free(least.id).ok());
  return least.bytes;
}

BindingId DeviceContract::Bind(const DeviceSample& sample) {
  const auto binding = device_->Bind(sample.plan(), sample.blocks());
  EXPECT_TRUE(binding.ok()) << binding.status();
  return binding.ok() ? *binding : BindingId::kNone;
}

std::vector<Completion> DeviceContract::WaitFor(size_t count) {
  std::vector<Completion> all;
  Completion some[4];
  while (true) {
    // Read first: a wake-up during Poll() may be for what that missed.
    const uint64_t wakes = wakes_->count();
    size_t got;
    while (all.size() < count &&
           (got = device_->Poll(std::span(some).first(std::min<size_t>(4, count - all.size())))) >
               0) {
      all.insert(all.end(), some, some + got);
    }
    if (all.size() >= count) return all;
    if (!wakes_->WaitBeyond(wakes)) {
      ADD_FAILURE() << "a completion or wake-up is lost: " << all.size() << " of " << count;
      all.resize(count);
      return all;
    }
  }
}

Completion DeviceContract::RunOnce(BindingId binding) {
  const absl::Status status = device_->Launch(LaneId{0}, binding, 1);
  EXPECT_TRUE(status.ok()) << status;
  return status.ok() ? WaitFor(1)[0] : Completion{};
}

bool DeviceContract::Eventually(const std::function<bool()>& step) {
  const auto until = std::chrono::steady_clock::now() + kLost;
  while (std::chrono::steady_clock::now() < until) {
    if (step()) return true;
  }
  return false;
}

}  // namespace tetrad
