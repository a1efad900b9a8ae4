// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Seeded operands of one grouped GEMM, for tests and benchmarks.
//
// Operands owns every buffer, each of exactly its size; C is surrounded and
// interleaved by a pattern, so that a stray write shows. Padding of blocked
// scale planes holds junk, NaN bytes included, and bit 7 of activation scales
// is random: neither may matter. Movable; pointers survive a move. The same
// seed gives the same bytes on every platform.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/aligned_buffer.h"
#include "kernels/problem.h"
#include "kernels/random.h"
#include "kernels/shapes.h"

namespace tetrad {

enum class DataKind : uint8_t {
  // Codes 0, .5, 1, 1.5 and their negatives, scales 1 and 2, alpha 1: every sum
  // is exact and no FP16 output overflows up to K = 7168.
  kContest = 0,
  // All codes, scales with mantissas over many exponents, any alpha and row
  // scale, thinned until every sum is exact (checked, see exactness.h).
  kExact = 1,
  // All codes and all scales, uniformly; 16-bit activations normal.
  kGeneral = 2,
  // Normal data, quantised.
  kNormal = 3,
};

// Whether outputs for this kind must match the reference bit by bit.
constexpr bool IsExact(DataKind kind) {
  return kind == DataKind::kContest || kind == DataKind::kExact;
}

struct SampleOptions {
  ProblemTypes types = {};
  DataKind kind = DataKind::kExact;
  GroupForm form = GroupForm::kSeparate;  // kStacked needs one N and K for all groups
  bool row_scales = false;
  int64_t c_padding = 0;  // elements added to the least legal stride of C
  uint64_t seed = 1;
};

class Operands {
 public:
  Operands(std::span<const GroupShape> shapes, const SampleOptions& options);

  const ProblemTypes& types() const { return options_.types; }
  DataKind kind() const { return options_.kind; }
  std::span<const GroupProblem> groups() const { return groups_; }

  // The operands as one stack (form kStacked only), m_source kHost.
  const DeviceMProblem& stack() const { return stack_; }

  // Fills C and all around it with the pattern again.
  void ClearOutput();
  // True if every byte around and between the outputs of `groups`, whose C lie
  // in these operands, still holds the pattern.
  bool OnlyOutputWritten(std::span<const GroupProblem> groups) const;

 private:
  struct Planes;  // writable addresses of one group

  std::vector<Planes> AllocateSeparate(std::span<const GroupShape> shapes);
  std::vector<Planes> AllocateStacked(std::span<const GroupShape> shapes);
  uint8_t* Allocate(int64_t bytes);
  std::byte* AllocateOutput(int64_t m, int64_t n, int64_t* stride);

  SampleOptions options_;
  std::vector<AlignedBuffer> buffers_;
  std::vector<AlignedBuffer> outputs_;
  std::vector<GroupProblem> groups_;
  std::vector<float> alphas_;
  DeviceMProblem stack_;
};

}  // namespace tetrad
