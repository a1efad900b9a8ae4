// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Prepares activations (prepare.h). A lane has eight numbers at a time, of NVFP4 4 bytes in
// and 16 out, and its neighbours those beside them: so each instruction of a warp reads 128
// and writes 512 bytes without gaps, where 16 codes a lane would write half sectors.
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/dequantise.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/sm90/live_rows.cuh"
#include "kernels/sm90/prepare.h"
#if defined(__CUDACC__)
#include "kernels/sm90/ptx.cuh"
#endif

namespace tetrad::sm90 {
namespace {

constexpr uint32_t kWord = 8;  // numbers
constexpr int32_t kLaneWords = kPreparePiece / kWord / 32;
constexpr int32_t kWordsOfScale = kScaleBlock / kWord;
constexpr uint32_t kPrepareWarps = kPrepareThreads / 32;
static_assert(kPreparePiece == 32 * kWord * kLaneWords);

// Of a multiprocessor: 32 registers a thread, with which a CTA has room beside one of the
// GEMM's "decode".
constexpr int kResidentCtas = 16;

// What the product of Fp16Operand's code and scale lacks: 2^7, twice.
constexpr uint32_t kToValue = 0x58005800;
static_assert(cuda::Fp16Operand::kOperandScale == 0x1p-7f);

// Programmatic edges are of 9.0 and later. No load of this file may be __ldg, which the
// compiler could move before the wait.
__device__ inline void MeetOtherGrids() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  LetNextGridStart();
  WaitForPriorGrid();
#endif
}

// The last group that begins at or before `row`; all threads of the warp, each of which looks
// at one of 32 groups at a time: few reads that wait for the one before.
__device__ inline int32_t GroupOfRow(const PrepareArguments& arguments, uint32_t row) {
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  int32_t from = 0;
  int32_t count = arguments.group_count;
  while (count > 1) {
    const int32_t step = (count + 31) / 32;
    const int32_t at = lane * step;
    const bool begun = at < count && static_cast<uint32_t>(arguments.groups[from + at].row) <= row;
    const int32_t skipped = (__popc(__ballot_sync(0xFFFFFFFFu, begun)) - 1) * step;
    from += skipped;
    count = min(step, count - skipped);
  }
  return from;
}

__device__ inline uint4 ExpandWord(uint32_t codes, uint32_t scale) {
  using cuda::Fp16Operand;
  const uint32_t twice = scale | scale << 8;
  const uint32_t scales =
      cuda::MultiplyFp16x2(cuda::MovedScales<Fp16Operand>(twice), Fp16Operand::kScaleFactor);
  // All bits of NaN over zeros: so its sign, too, is not left to a multiplication.
  const uint32_t nan = cuda::NanScales(twice);
  if (nan != 0) codes = 0;
  const auto pair = [&](uint32_t i) {
    const uint32_t product = cuda::MultiplyFp16x2(cuda::MovedPair<Fp16Operand>(codes, i), scales);
    return cuda::MultiplyFp16x2(product, kToValue) | nan;
  };
  return make_uint4(pair(0), pair(1), pair(2), pair(3));
}

// Word `first` of a row and those 32, 64, ... behind it, as far as there are such; its first
// number is at byte `a` of the operand, its first scale at byte `scale`. Everything is asked for
// before anything is waited for. What is not read is 0, as it is to be behind k.
template <bool nvfp4>
__device__ inline void PrepareWords(const PrepareArguments& arguments, int64_t a,
                                    [[maybe_unused]] int64_t scale, uint32_t k, uint32_t row,
                                    int32_t first) {
  using Word = std::conditional_t<nvfp4, uint32_t, uint4>;
  const int32_t words = static_cast<int32_t>(k / kWord) - first;
  const auto* const from = reinterpret_cast<const Word*>(arguments.a + a) + first;
  Word numbers[kLaneWords] = {};
#pragma unroll
  for (int i = 0; i < kLaneWords; ++i) {
    if (32 * i < words) numbers[i] = from[32 * i];
  }
  [[maybe_unused]] uint32_t of_numbers[kLaneWords] = {};
  if constexpr (nvfp4) {
    // The blocks of 32 words are whole tiles of a blocked layout.
    constexpr int32_t kBlocks = 32 / kWordsOfScale;
    static_assert(kBlocks % 4 == 0);
    const ScaleLayout layout = arguments.a_scale_layout;
    const uint8_t* const scales =
        arguments.a_scales + scale + ScaleOffset(layout, 0, first / kWordsOfScale, k);
    const auto step = static_cast<int32_t>(ScaleOffset(layout, 0, kBlocks, k));
#pragma unroll
    for (int i = 0; i < kLaneWords; ++i) {
      if (32 * i < words) of_numbers[i] = scales[i * step];
    }
  }
  const auto pitch = static_cast<uint32_t>(arguments.pitch);
  const int32_t written = static_cast<int32_t>(min((k + 63) / 64 * 64, pitch) / kWord) - first;
  auto* const to = reinterpret_cast<uint4*>(arguments.tokens + uint64_t{row} * pitch) + first;
#pragma unroll
  for (int i = 0; i < kLaneWords; ++i) {
    if (32 * i >= written) continue;
    if constexpr (nvfp4) {
      to[32 * i] = ExpandWord(numbers[i], of_numbers[i]);
    } else {
      to[32 * i] = numbers[i];
    }
  }
}

// The bytes of a row.
template <bool nvfp4>
__device__ inline uint32_t RowBytes(uint32_t k) {
  return nvfp4 ? k / 2 : k * 2;
}

// The pieces of a warp: of which row, and the word of this lane.
struct Pieces {
  uint32_t piece = blockIdx.x * kPrepareWarps + threadIdx.x / 32;
  uint32_t of_row;
  __device__ explicit Pieces(int32_t pitch)
      : of_row((static_cast<uint32_t>(pitch) + kPreparePiece - 1) / kPreparePiece) {}
  __device__ uint32_t row() const { return piece / of_row; }
  __device__ int32_t first_word() const {
    return static_cast<int32_t>(piece % of_row * (32 * kLaneWords) + threadIdx.x % 32);
  }
  __device__ void Advance() { piece += gridDim.x * kPrepareWarps; }
};

template <bool nvfp4>
__device__ void PrepareHost(const PrepareArguments& arguments) {
  for (Pieces at(arguments.pitch); at.row() < static_cast<uint32_t>(arguments.rows); at.Advance()) {
    const uint32_t row = at.row();
    const PrepareGroup* const group = arguments.groups + GroupOfRow(arguments, row);
    const int64_t in_group = row - group->row;
    const auto k = static_cast<uint32_t>(group->k);
    const int64_t a = group->a + in_group * RowBytes<nvfp4>(k);
    const int64_t scale = group->a_scales + ScaleOffset(arguments.a_scale_layout, in_group, 0, k);
    PrepareWords<nvfp4>(arguments, a, scale, k, row, at.first_word());
  }
}

template <bool nvfp4>
__device__ void PrepareLive(const PrepareArguments& arguments, LiveWindow& window) {
  const auto k = static_cast<uint32_t>(arguments.k);
  Pieces at(arguments.pitch);
  BeginLive(window);
  while (window.next_group < arguments.group_count) {
    LoadWindow(arguments, window);
    for (; at.row() < window.next; at.Advance()) {
      const int in_window = GroupInWindow(window, at.row());
      const uint32_t row = at.row() + window.to_row[in_window];
      const uint32_t scale_row = at.row() + window.to_scale_row[in_window];
      const int64_t a = int64_t{row} * RowBytes<nvfp4>(k);
      const int64_t scale = ScaleOffset(arguments.a_scale_layout, scale_row, 0, k);
      PrepareWords<nvfp4>(arguments, a, scale, k, row, at.first_word());
    }
  }
}

}  // namespace
}  // namespace tetrad::sm90

extern "C" __global__ void __launch_bounds__(tetrad::sm90::kPrepareThreads,
                                             tetrad::sm90::kResidentCtas)
    tetrad_sm90_prepare(const __grid_constant__ tetrad::sm90::PrepareArguments arguments) {
  using namespace tetrad;
  using namespace tetrad::sm90;
  MeetOtherGrids();
  if (arguments.begins && blockIdx.x == 0 && threadIdx.x == 0) {
    arguments.state->begun_ns = cuda::GlobalTimer();
  }
  const bool nvfp4 = arguments.a_type == ActivationType::kNvfp4;
  if (arguments.m_source == MSource::kHost) {
    nvfp4 ? PrepareHost<true>(arguments) : PrepareHost<false>(arguments);
  } else {
    __shared__ LiveWindow window;
    nvfp4 ? PrepareLive<true>(arguments, window) : PrepareLive<false>(arguments, window);
  }
}

extern "C" __global__ void __launch_bounds__(tetrad::sm90::kPrepareThreads)
    tetrad_sm90_snapshot(const __grid_constant__ tetrad::sm90::SnapshotArguments arguments) {
  using namespace tetrad;
  sm90::MeetOtherGrids();
  if (threadIdx.x == 0) arguments.state->begun_ns = cuda::GlobalTimer();
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < arguments.count;
       i += sm90::kPrepareThreads) {
    arguments.to[i] = *static_cast<const volatile int32_t*>(arguments.from + i);
  }
}
