// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// CpuBinding: a plan with concrete memory, as the CPU kernel runs it.
//
// Make() checks every block against the plan, so that no launch can reach
// outside of what was bound. Rebind() does the same for other memory of the
// same plan, and allocates nothing. Begin() prepares one launch (reads counts and
// alphas, forms addresses) and says how many tiles it has; Run() computes one
// of them. Begin() and Run() allocate nothing. One launch at a time; its tiles
// may run on any threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/bound_operands.h"
#include "engine/plan.h"
#include "kernels/cpu/grouped_gemm.h"

namespace tetrad {

class CpuBinding {
 public:
  static absl::StatusOr<std::unique_ptr<CpuBinding>> Make(AllocationTable& memory,
                                                          std::shared_ptr<const Plan> plan,
                                                          const OperandBlocks& operands,
                                                          int32_t ctas);
  CpuBinding(const CpuBinding&) = delete;

  // On error the binding is as before. Not while a launch uses it.
  absl::Status Rebind(const OperandBlocks& operands);

  int64_t Begin(uint32_t* error_word);
  void Run(int64_t index, cpu::InstructionSet set, std::span<std::byte> scratch) const;

 private:
  CpuBinding(AllocationTable& memory, std::shared_ptr<const Plan> plan, int32_t ctas);
  void FormGroups();
  void CutLiveTiles();
  Tile LiveTile(int64_t index) const;

  AllocationTable& memory_;
  const std::shared_ptr<const Plan> plan_;
  const int32_t ctas_;
  BoundOperands operands_;
  std::vector<GroupProblem> groups_;
  std::vector<int64_t> tile_begin_;  // device-side M: first tile of each group, and the end
  int32_t live_columns_ = 0;         // device-side M: columns of a tile in this launch
};

}  // namespace tetrad
