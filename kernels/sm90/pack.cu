// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Packs and unpacks weights on the device (pack.h). A piece is what a CTA has in
// shared memory at a time: 128 rows x 256 k. Between there and the packed form run
// 16 bytes a thread in order; between there and the matrix a thread has 32 codes of a
// row, 16 bytes, and eight threads 128 bytes of it. The 16 bytes as a 4 x 4 matrix of
// bytes, transposed, are the codes of four words.
#include <cstdint>

#include "kernels/sm90/pack.h"

namespace tetrad::sm90 {
namespace {

constexpr int kChunkCodes = 32;
constexpr int kStepChunks = kBlockK / kChunkCodes;
constexpr int kRowChunks = kPackSteps * kStepChunks;
constexpr int kBlockChunks = kBlockBytes / 16;
// 16 bytes more than a block: so the words of eight threads lie in different banks.
constexpr int kPitch = kBlockBytes + 16;
constexpr int kStageBytes = kPackSteps * kPitch;

struct Piece {
  int64_t group;
  int32_t strip;
  int32_t step;   // the first
  int32_t steps;  // at most kPackSteps
};

__device__ Piece PieceAt(const WeightsStack& w, uint32_t index) {
  const auto strips = static_cast<uint32_t>(CeilDiv(w.n, kBlockRows));
  const auto steps = static_cast<int32_t>(CeilDiv(w.k, kBlockK));
  const auto of_strip = static_cast<uint32_t>(CeilDiv(steps, kPackSteps));
  const auto first = static_cast<int32_t>(index % of_strip) * kPackSteps;
  const uint32_t strip = index / of_strip;
  return {strip / strips, static_cast<int32_t>(strip % strips), first,
          min(kPackSteps, steps - first)};
}

// What a piece is of: addresses of its group's matrix, and of its first block.
__device__ int64_t CodesBefore(const WeightsStack& w, const Piece& piece) {
  return piece.group * CodeBytes(w.n, w.k);
}
__device__ int64_t ScalesBefore(const WeightsStack& w, const Piece& piece) {
  return piece.group * ScalePlaneBytes(w.scale_layout, w.n, w.k);
}
__device__ int64_t PackedBefore(const WeightsStack& w, const Piece& piece) {
  return piece.group * PackedBytes(w.n, w.k) +
         (piece.strip * CeilDiv(w.k, kBlockK) + piece.step) * kBlockBytes;
}

// Where in the stage the chunk's word for lanes with q = 0 is; that for q is 16 q bytes on.
__device__ int CodesAt(int row, int chunk) {
  const int r = FragmentRowOf(row % kSlabRows);
  return chunk / kStepChunks * kPitch + row / kSlabRows * kSlabCodeBytes + r % 8 * 64 +
         (r / 8 * kStepChunks + chunk % kStepChunks) * 4;
}
__device__ int ScalesAt(int row, int step) {
  const int r = FragmentRowOf(row % kSlabRows);
  return step * kPitch + kBlockCodeBytes + row / kSlabRows * kSlabScaleBytes + r % 8 * 8 +
         r / 8 * 4;
}

__device__ uint32_t& WordAt(uint4* stage, int byte) {
  return reinterpret_cast<uint32_t*>(stage)[byte / 4];
}

__device__ uint32_t PairAt(uint32_t bytes, int q) {
  return CodePair(bytes >> (8 * q) & 0xF, bytes >> (8 * q + 4) & 0xF);
}

__device__ void PackCodes(const uint8_t* codes, const WeightsStack& w, const Piece& piece,
                          uint4* stage) {
  for (int i = static_cast<int>(threadIdx.x); i < kBlockRows * kRowChunks; i += kPackThreads) {
    const int row = i / kRowChunks, chunk = i % kRowChunks;
    const int64_t matrix_row = int64_t{piece.strip} * kBlockRows + row;
    const int64_t k = (int64_t{piece.step} * kStepChunks + chunk) * kChunkCodes;
    uint4 bytes = make_uint4(0, 0, 0, 0);
    if (matrix_row < w.n && k < w.k) {
      bytes = __ldg(reinterpret_cast<const uint4*>(codes + matrix_row * (w.k / 2) + k / 2));
    }
    const int at = CodesAt(row, chunk);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      WordAt(stage, at + 16 * q) = PackWord(
          {{PairAt(bytes.x, q), PairAt(bytes.y, q), PairAt(bytes.z, q), PairAt(bytes.w, q)}});
    }
  }
}

__device__ void UnpackCodes(uint8_t* codes, const WeightsStack& w, const Piece& piece,
                            uint4* stage) {
  for (int i = static_cast<int>(threadIdx.x); i < kBlockRows * kRowChunks; i += kPackThreads) {
    const int row = i / kRowChunks, chunk = i % kRowChunks;
    const int64_t matrix_row = int64_t{piece.strip} * kBlockRows + row;
    const int64_t k = (int64_t{piece.step} * kStepChunks + chunk) * kChunkCodes;
    if (matrix_row >= w.n || k >= w.k) continue;
    const int at = CodesAt(row, chunk);
    uint4 bytes = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const FragmentPairs pairs = UnpackWord(WordAt(stage, at + 16 * q));
      bytes.x |= PairCodes(pairs.pairs[0]) << (8 * q);
      bytes.y |= PairCodes(pairs.pairs[1]) << (8 * q);
      bytes.z |= PairCodes(pairs.pairs[2]) << (8 * q);
      bytes.w |= PairCodes(pairs.pairs[3]) << (8 * q);
    }
    *reinterpret_cast<uint4*>(codes + matrix_row * (w.k / 2) + k / 2) = bytes;
  }
}

// A thread's four scales of a row: in the order in which the plane has them.
struct ScalePlace {
  int row;       // of the piece
  int step;      // of the piece
  int64_t byte;  // of the plane
  int count;     // that exist: 0, 2 or 4
};
__device__ ScalePlace PlaceOfScales(const WeightsStack& w, const Piece& piece, int i) {
  const bool linear = w.scale_layout == ScaleLayout::kLinear;
  ScalePlace place;
  if (linear) {
    place.row = i / kPackSteps;
    place.step = i % kPackSteps;
  } else {
    place.row = i % 4 * 32 + i % kBlockRows / 4;
    place.step = i / kBlockRows;
  }
  const int64_t row = int64_t{piece.strip} * kBlockRows + place.row;
  const int32_t step = piece.step + place.step;
  const int32_t left = w.k / kScaleBlock - step * 4;
  place.count = row < w.n && left > 0 ? min(4, left) : 0;
  place.byte =
      linear ? row * (w.k / kScaleBlock) + step * 4
             : (piece.strip * CeilDiv(w.k, kBlockK) + step) * kScaleTileBytes + i % kBlockRows * 4;
  return place;
}

__device__ void PackScalesOf(const uint8_t* scales, const WeightsStack& w, const Piece& piece,
                             uint4* stage) {
  for (int i = static_cast<int>(threadIdx.x); i < kBlockRows * kPackSteps; i += kPackThreads) {
    const ScalePlace place = PlaceOfScales(w, piece, i);
    uint32_t s = 0;
    // Rows of a linear plane begin at a multiple of two.
    const auto* const at = reinterpret_cast<const uint16_t*>(scales + place.byte);
    if (place.count > 0) s = __ldg(at);
    if (place.count > 2) s |= uint32_t{__ldg(at + 1)} << 16;
    const auto scale = [&](int shift) {
      return uint32_t{EncodeScale(static_cast<uint8_t>(s >> shift))};
    };
    WordAt(stage, ScalesAt(place.row, place.step)) =
        PackScales(scale(0), scale(8), scale(16), scale(24));
  }
}

__device__ void UnpackScalesOf(uint8_t* scales, const WeightsStack& w, const Piece& piece,
                               uint4* stage) {
  for (int i = static_cast<int>(threadIdx.x); i < kBlockRows * kPackSteps; i += kPackThreads) {
    const ScalePlace place = PlaceOfScales(w, piece, i);
    if (place.step >= piece.steps) continue;
    const uint32_t word = WordAt(stage, ScalesAt(place.row, place.step));
    const uint32_t first = FirstScales(word), second = SecondScales(word);
    const auto scale = [](uint32_t bits) {
      return uint32_t{DecodeScale(static_cast<uint8_t>(bits >> 7))};
    };
    const uint32_t low = scale(first) | scale(first >> 16) << 8;
    const uint32_t high = scale(second) | scale(second >> 16) << 8;
    auto* const at = reinterpret_cast<uint16_t*>(scales + place.byte);
    const bool blocked = w.scale_layout == ScaleLayout::kBlocked;  // its padding is written
    if (place.count > 0 || blocked) at[0] = static_cast<uint16_t>(place.count > 0 ? low : 0);
    if (place.count > 2 || blocked) at[1] = static_cast<uint16_t>(place.count > 2 ? high : 0);
  }
}

// The stage's blocks, chunk i of them, as the packed form has them.
__device__ uint4& StagedChunk(uint4* stage, int i) {
  return stage[i / kBlockChunks * (kPitch / 16) + i % kBlockChunks];
}

}  // namespace
}  // namespace tetrad::sm90

extern "C" __global__ void __launch_bounds__(tetrad::sm90::kPackThreads)
    tetrad_sm90_pack(const tetrad::sm90::PackArguments arguments) {
  using namespace tetrad::sm90;
  __shared__ uint4 stage[kStageBytes / 16];
  const WeightsStack& weights = arguments.weights;
  const auto pieces = static_cast<uint32_t>(PackPieces(weights));
  for (uint32_t index = blockIdx.x; index < pieces; index += gridDim.x) {
    const Piece piece = PieceAt(weights, index);
    PackCodes(arguments.codes + CodesBefore(weights, piece), weights, piece, stage);
    PackScalesOf(arguments.scales + ScalesBefore(weights, piece), weights, piece, stage);
    __syncthreads();
    auto* const to = reinterpret_cast<uint4*>(arguments.packed + PackedBefore(weights, piece));
    for (int i = static_cast<int>(threadIdx.x); i < piece.steps * kBlockChunks; i += kPackThreads) {
      to[i] = StagedChunk(stage, i);
    }
    __syncthreads();
  }
}

extern "C" __global__ void __launch_bounds__(tetrad::sm90::kPackThreads)
    tetrad_sm90_unpack(const tetrad::sm90::UnpackArguments arguments) {
  using namespace tetrad::sm90;
  __shared__ uint4 stage[kStageBytes / 16];
  const WeightsStack& weights = arguments.weights;
  const auto pieces = static_cast<uint32_t>(PackPieces(weights));
  for (uint32_t index = blockIdx.x; index < pieces; index += gridDim.x) {
    const Piece piece = PieceAt(weights, index);
    const auto* const from =
        reinterpret_cast<const uint4*>(arguments.packed + PackedBefore(weights, piece));
    for (int i = static_cast<int>(threadIdx.x); i < piece.steps * kBlockChunks; i += kPackThreads) {
      StagedChunk(stage, i) = __ldg(from + i);
    }
    __syncthreads();
    UnpackCodes(arguments.codes + CodesBefore(weights, piece), weights, piece, stage);
    UnpackScalesOf(arguments.scales + ScalesBefore(weights, piece), weights, piece, stage);
    __syncthreads();
  }
}
