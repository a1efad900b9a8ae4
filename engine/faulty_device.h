// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// FaultyDevice (tests only): another device, with faults on command.
//
// Wraps a device that it owns. Without a command it changes nothing. Faults of
// calls (any status at the n-th call of a kind, or by chance) are returned
// without the device being asked. Faults of launches are decided when a launch
// is made: its completion may be held back, delayed by the injected clock,
// lost, or report failure; such a launch stays under way, in max_in_flight and
// for Unbind() and Rebind(), until its completion was fetched. Break() is the
// sticky fault.
//
//   for (int64_t n = 1;; ++n) {
//     device.FailNth(Call::kAllocate, n, absl::ResourceExhaustedError("injected"));
//     ... run what is to be tested ...
//     if (!device.fault_fired()) break;  // every call site was hit once
//     ... check ...
//   }
//
// Thread-safe. `wake` is passed on, and called for completions that a command
// or the clock made available.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "engine/device.h"
#include "kernels/random.h"

namespace tetrad {

// The calls of Device that can fail.
enum class Call : uint8_t {
  kAllocate,
  kFree,
  kSeal,
  kExport,
  kImport,
  kWrite,  // Fill() too
  kRead,
  kClear,
  kPackWeights,
  kMakeReady,
  kBind,
  kRebind,
  kUnbind,
  kLaunch,
};
inline constexpr size_t kCalls = 14;
std::string_view Name(Call call);

class FaultyDevice final : public Device {
 public:
  using Make = std::function<absl::StatusOr<std::unique_ptr<Device>>(std::function<void()> wake)>;
  // Nanoseconds; it only has to be monotonic.
  using Clock = std::function<int64_t()>;

  // `clock` is needed by DelayCompletions() alone.
  static absl::StatusOr<std::unique_ptr<FaultyDevice>> Create(const Make& make,
                                                              std::function<void()> wake,
                                                              Clock clock = nullptr);

  // Faults of calls.
  //
  // The n-th call from now on (1: the next) fails with `status`, once. Replaces
  // what was set for this kind of call, and forgets what fired before.
  void FailNth(Call call, int64_t n, absl::Status status);
  // Every call fails with this probability, the same ones for the same seed.
  void FailRandomly(Call call, double probability, uint64_t seed, absl::Status status);
  // No more faults of calls.
  void StopFailing();
  // Whether a call failed by command since the last FailNth() or FailRandomly().
  bool fault_fired() const;
  // Calls of this kind so far, failed ones included.
  int64_t calls(Call call) const;

  // Fill() asks its source for at most so many bytes at a time; 0: as the device
  // does. No fault, but a device may.
  void FillInPieces(int64_t bytes) { piece_bytes_.store(bytes); }

  // Faults of the launches that are made from now on.
  //
  // Held until released: for all, until ReleaseCompletions() ends that.
  void HoldCompletions();
  void ReleaseCompletions();
  // Delayed until the clock is `ns` past the launch; 0: no more. Whoever moves
  // the clock calls ClockMoved(), which wakes if a completion became due.
  void DelayCompletions(int64_t ns);
  void ClockMoved();
  // The next `launches` never complete; the device runs them all the same.
  void LoseCompletions(int64_t launches);
  // The next `launches` run and complete with `code`.
  void FailLaunches(int64_t launches, absl::StatusCode code = absl::StatusCode::kInternal);

  // The fault that ends the use of the device: health() is `status` for ever,
  // Launch() is refused with it, nothing completes any more. Wakes.
  void Break(absl::Status status = absl::InternalError("injected: the device is lost"));

  const DeviceLimits& limits() const override { return device_->limits(); }
  MemoryUse memory_use() const override { return device_->memory_use(); }
  ExecutionUse execution_use() const override { return device_->execution_use(); }
  absl::Status health() const override;
  absl::StatusOr<Allocation> Allocate(int64_t bytes) override;
  absl::Status Free(AllocationId id) override;
  absl::Status Seal(AllocationId id) override;
  absl::StatusOr<UniqueFd> Export(AllocationId id) override;
  absl::StatusOr<Allocation> Import(UniqueFd fd, const AllocationIdentity& identity, int64_t bytes,
                                    bool writable) override;
  absl::Status Write(AllocationId id, int64_t offset, std::span<const std::byte> data) override;
  absl::Status Fill(AllocationId id, int64_t offset, int64_t bytes, FillSource source) override;
  absl::Status Read(AllocationId id, int64_t offset, std::span<std::byte> data) const override;
  absl::Status Clear(AllocationId id, int64_t offset, int64_t bytes) override;
  absl::Status PackWeights(const WeightsToPack& weights) override;
  absl::Status MakeReady(const std::shared_ptr<const Plan>& plan, const BlockRef& b,
                         const BlockRef& b_scales) override;
  absl::StatusOr<BindingId> Bind(std::shared_ptr<const Plan> plan,
                                 const OperandBlocks& operands) override;
  absl::Status Rebind(BindingId id, const OperandBlocks& operands) override;
  absl::Status Unbind(BindingId id) override;
  absl::Status Launch(LaneId lane, BindingId binding, uint64_t ticket) override;
  size_t Poll(std::span<Completion> out) override;

 private:
  // Of one kind of call.
  struct CallFault {
    int64_t calls = 0;
    int64_t fail_in = 0;  // calls until the one that fails; 0: none
    double probability = 0;
    Random random{0};
    absl::Status status;
  };
  // From Launch() until its completion was fetched.
  struct UnderWay {
    LaneId lane{};
    BindingId binding = BindingId::kNone;
    uint64_t ticket = 0;
    bool held = false, lost = false;
    absl::StatusCode code = absl::StatusCode::kOk;
    int64_t due_ns = 0;  // 0: at once
    bool complete = false;
    Completion completion;
    bool late() const { return held || lost || due_ns != 0; }
  };

  FaultyDevice(std::function<void()> wake, Clock clock);
  // Counts the call, and fails it if it is to fail.
  absl::Status Enter(Call call) const;
  // Needs mutex_.
  absl::Status CheckNotUnderWay(BindingId binding) const;
  // Takes what the device completed, for a Poll() of `wanted`. Needs mutex_.
  void Collect(size_t wanted);
  bool Due(const UnderWay& launch) const { return launch.due_ns == 0 || clock_() >= launch.due_ns; }

  const std::function<void()> wake_;
  const Clock clock_;
  mutable std::mutex mutex_;
  mutable std::array<CallFault, kCalls> faults_;  // guarded by mutex_
  mutable bool fired_ = false;                    // guarded by mutex_
  bool holding_ = false;                          // guarded by mutex_
  int64_t delay_ns_ = 0;                          // guarded by mutex_
  int64_t to_lose_ = 0;                           // guarded by mutex_
  int64_t to_fail_ = 0;                           // guarded by mutex_
  absl::StatusCode fail_code_{};                  // guarded by mutex_
  absl::Status health_;                           // guarded by mutex_
  std::atomic<int64_t> piece_bytes_{0};
  std::vector<UnderWay> under_way_;  // in order of launch; guarded by mutex_
  std::unique_ptr<Device> device_;   // destroyed first: its threads wake us
};

}  // namespace tetrad
