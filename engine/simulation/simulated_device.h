// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// SimulatedDevice: a device that does nothing by itself. Memory is really
// held; a launch reads its operands and writes its output only when the world
// says that it completes, so that memory freed, reused, cleared or bound
// elsewhere too early shows in what comes back.
//
// The world decides what completes, fails or gets lost and when; before each
// call it may let the call fail, or do something else meanwhile, as another
// thread would. Whatever the engine must never ask of a device is reported as
// misuse. One thread; no id is ever used twice; a pure function of the calls.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/device.h"

namespace tetrad::simulation {

class SimulatedDevice final : public Device {
 public:
  enum class Call : uint8_t { kAllocate, kFree, kWrite, kClear, kBind, kRebind, kLaunch };
  // What was in memory when a launch was handed over, to recognise it by.
  struct HandOver {
    uint64_t ticket = 0;
    uint64_t a_tag = 0, c_tag = 0;  // the first bytes; 0 if there are fewer than 8
    absl::Status status;            // what Launch() answers
    bool ahead = false;             // others were under way, or over and not polled
  };
  struct World {
    std::function<absl::Status(Call)> before;
    std::function<void(std::string)> misuse;
    std::function<void(const HandOver&)> handed_over;
    std::function<void()> wake;
  };
  struct Options {
    int64_t memory_bytes = 1 << 20;
    int32_t lanes = 2;
    int32_t max_in_flight = 4;
  };
  // One launch under way, in order of hand-over.
  struct Running {
    uint64_t ticket = 0;
    LaneId lane{};
    uint64_t binding = 0;
    bool lost = false;  // never completes
  };

  SimulatedDevice(const Options& options, World world);
  ~SimulatedDevice() override;

  const std::vector<Running>& running() const { return running_; }
  // Nothing of its lane is before it.
  bool CanComplete(size_t index) const;
  // Computes and ends it; with another code than OK the output is garbage.
  void Complete(size_t index, absl::StatusCode code);
  void Lose(size_t index) { running_[index].lost = true; }
  void LoseDevice();
  bool lost() const { return !health_.ok(); }
  // From now on the engine may touch no memory of it but that of clients.
  void Abandon() { abandoned_ = true; }

  const DeviceLimits& limits() const override { return limits_; }
  MemoryUse memory_use() const override;
  ExecutionUse execution_use() const override { return {}; }
  absl::Status health() const override { return health_; }
  absl::StatusOr<Allocation> Allocate(int64_t bytes) override;
  absl::Status Free(AllocationId id) override;
  absl::Status Seal(AllocationId id) override;
  absl::StatusOr<UniqueFd> Export(AllocationId) override;
  absl::StatusOr<Allocation> Import(UniqueFd, const AllocationIdentity&, int64_t, bool) override;
  absl::Status Write(AllocationId id, int64_t offset, std::span<const std::byte> data) override;
  absl::Status Fill(AllocationId id, int64_t offset, int64_t bytes, FillSource source) override;
  absl::Status Read(AllocationId id, int64_t offset, std::span<std::byte> data) const override;
  absl::Status Clear(AllocationId id, int64_t offset, int64_t bytes) override;
  absl::Status PackWeights(const WeightsToPack&) override {
    return absl::FailedPreconditionError("this device does not pack weights");
  }
  absl::Status MakeReady(const std::shared_ptr<const Plan>&, const BlockRef&,
                         const BlockRef&) override {
    return health_;
  }
  absl::StatusOr<BindingId> Bind(std::shared_ptr<const Plan> plan,
                                 const OperandBlocks& operands) override;
  absl::Status Rebind(BindingId id, const OperandBlocks& operands) override;
  absl::Status Unbind(BindingId id) override;
  absl::Status Launch(LaneId lane, BindingId binding, uint64_t ticket) override;
  size_t Poll(std::span<Completion> out) override;

 private:
  struct Memory {
    std::vector<std::byte> bytes;
    bool sealed = false;
    int pins = 0;
  };
  struct Binding {
    std::shared_ptr<const Plan> plan;
    OperandBlocks operands;
    int launches = 0;
  };
  absl::Status Misuse(absl::StatusCode code, std::string message) const;
  // The range, or empty and reported if there is no such memory.
  absl::StatusOr<std::span<std::byte>> Range(const char* call, const BlockRef& block,
                                             bool writing) const;
  std::span<std::byte> Bytes(const BlockRef& block);
  absl::Status CheckOperands(const Plan& plan, const OperandBlocks& operands) const;
  void Pin(const OperandBlocks& operands, int change);
  absl::StatusOr<Binding*> FindBinding(BindingId id);

  DeviceLimits limits_;
  const World world_;
  absl::Status health_;
  bool abandoned_ = false;
  mutable std::map<uint64_t, Memory> memory_;
  std::map<uint64_t, Binding> bindings_;
  uint64_t last_id_ = 0;
  int64_t allocated_bytes_ = 0;
  std::vector<Running> running_;
  std::vector<Completion> completed_;
};

}  // namespace tetrad::simulation
