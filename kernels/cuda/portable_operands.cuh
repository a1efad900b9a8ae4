// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// How the portable kernel brings rows of an operand into a stage of shared
// memory as 16-bit numbers. One object a thread, operand and tile, called once a
// K step, in order:
//
//   Fetch()         what comes from global memory and needs work on the way: to registers
//   Expand(stage)   writes what was fetched last, or starts a copy, to the stage
//
// A thread never reads beyond its rows or K, and writes nothing in their place:
// what a stage holds there is old, and only feeds outputs that are not stored
// (a row of A, and a column of B, reaches no other) or k that is not multiplied.
#pragma once

#include <cstdint>

#include "kernels/cuda/dequantise.h"
#include "kernels/cuda/portable_layout.h"
#include "kernels/cuda/ptx.cuh"

namespace tetrad::cuda {

// The 16-bit format of both operands.
template <ActivationType type>
struct OperandOf {
  using Type = Fp16Operand;
};
template <>
struct OperandOf<ActivationType::kBf16> {
  using Type = Bf16Operand;
};

__device__ inline uint32_t Multiply(Fp16Operand, uint32_t x, uint32_t y) {
  return MultiplyFp16x2(x, y);
}
__device__ inline uint32_t Multiply(Bf16Operand, uint32_t x, uint32_t y) {
  return MultiplyBf16x2(x, y);
}
__device__ inline uint32_t CodeValues(Fp16Operand, uint32_t moved) { return moved; }
__device__ inline uint32_t CodeValues(Bf16Operand format, uint32_t moved) {
  return Multiply(format, moved, Bf16Operand::kCodeFactor);
}

// Rows of NVFP4: thread 2 r + h has half h of row r of every step.
template <class Operand>
class CodeRows {
 public:
  // `codes`: row 0 of the tile; `scales`: the plane, in which the tile begins at `first_row`.
  __device__ CodeRows(const uint8_t* codes, const uint8_t* scales, ScaleLayout layout,
                      int32_t first_row, int32_t rows, int32_t k) {
    const int32_t row = static_cast<int32_t>(threadIdx.x) / 2;
    const int half = static_cast<int>(threadIdx.x) % 2;
    codes_ = codes + CodeBytes(row, k) + half * (kThreadCodes / 2);
    scales_ = scales + FirstScales(layout, first_row + int64_t{row}, half, k);
    scale_step_ = static_cast<int32_t>(ScaleStep(layout));
    steps_left_ = row < rows ? StepsOfHalf(k, half) : 0;
    warp_has_rows_ = row / kMmaRows * kMmaRows < rows;
    offset_ = ChunkOffset(row, half * (kChunksPerRow / 2));
  }

  __device__ void Fetch() {
    if (steps_left_ <= 0) return;
    --steps_left_;
    fetched_ = __ldg(reinterpret_cast<const uint4*>(codes_));
    fetched_scales_ = __ldg(reinterpret_cast<const uint16_t*>(scales_));
    codes_ += kStepK / 2;
    scales_ += scale_step_;
  }

  __device__ void Expand(uint32_t operand_address) const {
    if (!warp_has_rows_) return;
    const uint32_t scales =
        Multiply(Operand{}, MovedScales<Operand>(fetched_scales_), Operand::kScaleFactor) |
        NanScales(fetched_scales_);
    const uint32_t words[] = {fetched_.x, fetched_.y, fetched_.z, fetched_.w};
#pragma unroll
    for (int chunk = 0; chunk < 4; ++chunk) {
      const uint32_t scale = BothHalves(scales, chunk / 2);
      const uint32_t word = words[chunk];
      const auto pair = [&](uint32_t i) {
        return Multiply(Operand{}, CodeValues(Operand{}, MovedPair<Operand>(word, i)), scale);
      };
      StoreShared((operand_address + offset_) ^ (chunk * kChunkBytes),
                  make_uint4(pair(0), pair(1), pair(2), pair(3)));
    }
  }

 private:
  const uint8_t* codes_;
  const uint8_t* scales_;
  uint4 fetched_ = {};
  uint32_t fetched_scales_ = 0;
  uint32_t offset_;
  int32_t scale_step_;
  int32_t steps_left_;
  bool warp_has_rows_;
};

// Rows of FP16 or BF16, copied as they are: lane l of a warp has chunk l % 8 of
// rows l / 8 + 4 i of the warp's fragment.
class PlainRows {
 public:
  __device__ PlainRows(const uint8_t* numbers, int32_t rows, int32_t k) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    const int32_t row = static_cast<int32_t>(threadIdx.x) / 32 * kMmaRows + lane / kChunksPerRow;
    const int32_t chunk = lane % kChunksPerRow;
    from_ = numbers + (int64_t{row} * k * 2 + chunk * kChunkBytes);
    stride_ = int64_t{kRowsApart} * k * 2;
    k_left_ = k - chunk * (kChunkBytes / 2);
    rows_left_ = rows - row;
    first_ = ChunkOffset(row, chunk);
    second_ = ChunkOffset(row + kRowsApart, chunk);
  }

  __device__ void Fetch() {}

  __device__ void Expand(uint32_t operand_address) {
#pragma unroll
    for (int i = 0; i < kMmaRows / kRowsApart; ++i) {
      // The swizzle repeats every 8 rows.
      const uint32_t to = (i % 2 == 0 ? first_ : second_) + i / 2 * (2 * kRowsApart * kRowBytes);
      if (k_left_ > 0 && i * kRowsApart < rows_left_) {
        CopyAsync(operand_address + to, from_ + i * stride_);
      }
    }
    from_ += kRowBytes;
    k_left_ -= kStepK;
  }

 private:
  static constexpr int kRowsApart = 32 / kChunksPerRow;
  static_assert(2 * kRowsApart == kChunksPerRow);

  const uint8_t* from_;
  int64_t stride_;
  int32_t k_left_;
  int32_t rows_left_;
  uint32_t first_;
  uint32_t second_;
};

}  // namespace tetrad::cuda
