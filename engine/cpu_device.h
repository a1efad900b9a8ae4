// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// CpuDevice: the device that is always there. Memory is memfd-backed; a fixed
// team of threads runs one launch at a time, each thread claiming tiles,
// longest first.
//
// A launch is over when its last tile is written; its completion then waits
// for Poll() and `wake` is called. Launches of all lanes run in the order they
// were made: with every core on each launch, lanes have nothing to overlap.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/binding_table.h"
#include "engine/cpu_binding.h"
#include "engine/cpu_memory.h"
#include "engine/device.h"

namespace tetrad {

class CpuDevice final : public Device {
 public:
  struct Options {
    int threads = 0;           // 0: as many as the process may keep busy
    int64_t memory_bytes = 0;  // 0: three quarters of what it may use
    std::optional<cpu::InstructionSet> instruction_set = std::nullopt;  // default: the best
    int32_t max_in_flight = 64;
    bool measure_rates = true;  // takes a fraction of a second
  };
  static absl::StatusOr<std::unique_ptr<CpuDevice>> Create(const Options& options,
                                                           std::function<void()> wake);
  ~CpuDevice() override;

  const DeviceLimits& limits() const override { return limits_; }
  MemoryUse memory_use() const override { return memory_.use(); }
  ExecutionUse execution_use() const override { return {}; }
  // A fault of the processor ends the process; there is no such state in between.
  absl::Status health() const override { return absl::OkStatus(); }
  absl::StatusOr<Allocation> Allocate(int64_t bytes) override { return memory_.Allocate(bytes); }
  absl::Status Free(AllocationId id) override { return memory_.Free(id); }
  absl::Status Seal(AllocationId id) override { return memory_.Seal(id); }
  absl::StatusOr<UniqueFd> Export(AllocationId id) override { return memory_.Export(id); }
  absl::StatusOr<Allocation> Import(UniqueFd fd, const AllocationIdentity& identity, int64_t bytes,
                                    bool writable) override {
    return memory_.Import(std::move(fd), identity, bytes, writable);
  }
  absl::Status Write(AllocationId id, int64_t offset, std::span<const std::byte> data) override {
    return memory_.Write(id, offset, data);
  }
  absl::Status Fill(AllocationId id, int64_t offset, int64_t bytes, FillSource source) override {
    return memory_.Fill(id, offset, bytes, source);
  }
  absl::Status Read(AllocationId id, int64_t offset, std::span<std::byte> data) const override {
    return memory_.Read(id, offset, data);
  }
  absl::Status Clear(AllocationId id, int64_t offset, int64_t bytes) override {
    return memory_.Clear(id, offset, bytes);
  }
  absl::Status PackWeights(const WeightsToPack&) override {
    return absl::FailedPreconditionError("this device does not pack weights");
  }
  absl::Status MakeReady(const std::shared_ptr<const Plan>&, const BlockRef&,
                         const BlockRef&) override {
    return absl::OkStatus();
  }
  absl::StatusOr<BindingId> Bind(std::shared_ptr<const Plan> plan,
                                 const OperandBlocks& operands) override;
  absl::Status Rebind(BindingId id, const OperandBlocks& operands) override;
  absl::Status Unbind(BindingId id) override;
  absl::Status Launch(LaneId lane, BindingId binding, uint64_t ticket) override;
  size_t Poll(std::span<Completion> out) override;

 private:
  // One launch, from Launch() until its completion was polled.
  struct Job {
    uint32_t binding_slot = 0;
    CpuBinding* binding = nullptr;
    uint64_t ticket = 0;
    int64_t tiles = 0;
    std::atomic<int64_t> next_tile{0};
    int active = 0;          // threads on it
    bool exhausted = false;  // every tile is claimed
    uint32_t error_word = 0;
    int64_t begun_ns = 0;
  };

  CpuDevice(cpu::InstructionSet set, DeviceLimits limits, std::function<void()> wake);
  void Work();
  void Finish(Job& job);

  DeviceLimits limits_;
  const cpu::InstructionSet instruction_set_;
  const std::function<void()> wake_;
  mutable CpuMemory memory_;

  std::mutex mutex_;
  std::condition_variable work_;
  BindingTable<CpuBinding> bindings_;    // guarded by mutex_
  const std::unique_ptr<Job[]> jobs_;    // a ring: queued jobs, oldest first
  uint64_t first_job_ = 0;               // oldest not finished; guarded by mutex_
  uint64_t last_job_ = 0;                // one past the newest; guarded by mutex_
  std::vector<Completion> completions_;  // not yet polled; guarded by mutex_
  enum class Stage : uint8_t { kIdle, kPreparing, kRunning };
  Stage stage_ = Stage::kIdle;  // of the oldest job; guarded by mutex_
  bool stopping_ = false;       // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace tetrad
