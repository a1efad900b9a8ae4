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

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/cpu_memory.h"
#include "engine/plan.h"
#include "kernels/cpu/grouped_gemm.h"

namespace tetrad {

class CpuBinding {
 public:
  static absl::StatusOr<std::unique_ptr<CpuBinding>> Make(CpuMemory& memory,
                                                          std::shared_ptr<const Plan> plan,
                                                          const OperandBlocks& operands,
                                                          int32_t ctas);
  CpuBinding(const CpuBinding&) = delete;

  // On error the binding is as before. Not while a launch uses it.
  absl::Status Rebind(const OperandBlocks& operands);

  int64_t Begin(uint32_t* error_word);
  void Run(int64_t index, cpu::InstructionSet set, std::span<std::byte> scratch) const;

 private:
  // The operands' addresses; the memory stays pinned until destruction.
  class Operands {
   public:
    explicit Operands(CpuMemory& memory) : memory_(memory) {}
    ~Operands();
    Operands(const Operands&) = delete;
    absl::Status Pin(const Plan& plan, const OperandBlocks& blocks);
    void Swap(Operands& other);

    DeviceMProblem stack;          // base addresses; all of a launch with device-side M
    const float* alpha = nullptr;  // one per group, read at Begin()

   private:
    template <typename T>
    absl::Status PinOne(const char* name, const BlockRef& block, int64_t want, bool writable,
                        T*& address);
    struct Pinned {
      AllocationId allocation = AllocationId::kNone;
      bool writable = false;
    };
    CpuMemory& memory_;
    std::array<Pinned, 8> pins_{};
    size_t pin_count_ = 0;
  };

  CpuBinding(CpuMemory& memory, std::shared_ptr<const Plan> plan, int32_t ctas);
  void FormGroups();
  void CutLiveTiles();
  Tile LiveTile(int64_t index) const;

  CpuMemory& memory_;
  const std::shared_ptr<const Plan> plan_;
  const int32_t ctas_;
  Operands operands_;
  std::vector<GroupProblem> groups_;
  std::vector<int64_t> tile_begin_;  // device-side M: first tile of each group, and the end
  int32_t live_columns_ = 0;         // device-side M: columns of a tile in this launch
};

}  // namespace tetrad
