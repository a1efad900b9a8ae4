// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// BoundOperands: the addresses of a plan's operands, each checked against the
// plan and pinned, so that no launch can reach outside of what was bound.
//
// Errors name the operand as clients know it. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"

#include "engine/allocation_table.h"
#include "engine/device.h"
#include "engine/plan.h"

namespace tetrad {

class BoundOperands {
 public:
  explicit BoundOperands(AllocationTable& memory) : memory_(memory) {}
  ~BoundOperands();
  BoundOperands(const BoundOperands&) = delete;

  // Of an object that was not pinned before. On error what it pinned goes with
  // its destruction.
  absl::Status Pin(const Plan& plan, const OperandBlocks& blocks);
  // One block on its own, called `name` in errors: its address; 0 if `want` bytes are none.
  absl::StatusOr<uint64_t> PinOne(const char* name, const BlockRef& block, int64_t want,
                                  bool writable);
  void Swap(BoundOperands& other);

  // Base addresses in the device's memory; null where the plan has no such
  // operand, or no bytes of it. With device-side M all that a launch needs.
  const DeviceMProblem& stack() const { return stack_; }

 private:
  template <typename T>
  absl::Status PinAt(const char* name, const BlockRef& block, int64_t want, bool writable,
                     T*& address);
  struct Pinned {
    AllocationId allocation = AllocationId::kNone;
    bool writable = false;
  };
  AllocationTable& memory_;
  DeviceMProblem stack_;
  std::array<Pinned, 8> pins_{};
  size_t pin_count_ = 0;
};

}  // namespace tetrad
