// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// DeviceSample (tests only): seeded operands in the memory of a device, and the
// judgement of what launches leave there.
//
// Weights are as the device's kernels read them: packed, if it packs them. Every operand has an
// allocation of its own. The output's is larger than its
// block and filled with a pattern, so that a stray write shows on any side.
// Not thread-safe. Frees nothing by itself: a test says what is bound when.
// What fails here is a failure of the test.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "engine/device.h"
#include "kernels/sample.h"

namespace tetrad {

struct DeviceSampleOptions {
  SampleOptions sample;
  // With device-side M: form kStacked, and every group has its capacity as M.
  // kOffsets: the capacity is their sum.
  MSource m_source = MSource::kHost;
};

class DeviceSample {
 public:
  static constexpr size_t kOperands = 8;
  struct NamedOperand {
    const char* name;  // as errors name it
    BlockRef OperandBlocks::*block;
  };
  static std::span<const NamedOperand, kOperands> AllOperands();

  DeviceSample(Device& device, std::vector<GroupShape> shapes,
               const DeviceSampleOptions& options = {});

  const std::shared_ptr<const Plan>& plan() const { return plan_; }
  const OperandBlocks& blocks() const { return blocks_; }
  // The operands on the host; the judgement fills their C.
  std::span<const GroupProblem> groups() const { return operands_.groups(); }
  const DeviceMProblem& stack() const { return operands_.stack(); }
  // The operand's allocation, as it came from the device.
  const Allocation& allocation(AllocationId id) const;
  // The operands that the signature has.
  std::vector<NamedOperand> operands() const;

  void SetMValues(std::span<const int32_t> values);
  // The pattern all over the allocation of C.
  void ClearOutput();
  // The output holds the exact result of `groups`, whose C lie in those of
  // groups(), and every other byte of its allocation the pattern.
  ::testing::AssertionResult Correct(std::span<const GroupProblem> groups);
  ::testing::AssertionResult Correct() { return Correct(groups()); }
  // Every byte outside the block of C holds the pattern.
  ::testing::AssertionResult NothingOutsideTheOutput() const;
  // Frees every operand's memory.
  ::testing::AssertionResult FreeAll();

 private:
  BlockRef Place(int64_t bytes);
  // Puts the groups' codes and scales into these, one group after the other.
  void PutWeights(const BlockRef& codes, const BlockRef& scales);
  void PlacePackedWeights();
  void Put(const BlockRef& block, int64_t offset, const void* data, int64_t bytes);
  std::vector<std::byte> ReadOutput() const;
  int64_t OutputOffset(size_t group, const GroupProblem& problem) const;

  Device& device_;
  const DeviceSampleOptions options_;
  Operands operands_;
  std::shared_ptr<const Plan> plan_;
  OperandBlocks blocks_;
  std::vector<Allocation> allocations_;
  int64_t output_bytes_ = 0;  // of the allocation of C
};

}  // namespace tetrad
