// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/weights_packer.h"

#include <algorithm>

#include "engine/support/status_macros.h"
#include "kernels/sm90/pack.h"

namespace tetrad::cuda {
namespace {

constexpr int64_t kPackCtas = 8;  // on a multiprocessor

}  // namespace

absl::StatusOr<std::unique_ptr<WeightsPacker>> WeightsPacker::Create(CudaContext& context,
                                                                     const KernelLibrary& library,
                                                                     int32_t multiprocessors) {
  std::unique_ptr<WeightsPacker> packer(new WeightsPacker(context, library, multiprocessors));
  TETRAD_RETURN_IF_ERROR(
      TETRAD_CUDA(context, StreamCreateWithPriority, &packer->stream_, CU_STREAM_NON_BLOCKING, 0));
  return packer;
}

WeightsPacker::~WeightsPacker() {
  if (stream_ == nullptr || !context_.Enter().ok()) return;
  context_.Release(context_.driver().StreamDestroy(stream_), "cuStreamDestroy");
}

absl::Status WeightsPacker::Pack(std::span<const GroupDims> groups, ScaleLayout scale_layout,
                                 const uint8_t* codes, const uint8_t* scales, uint8_t* packed) {
  TETRAD_RETURN_IF_ERROR(context_.Enter());
  absl::Status launched = absl::OkStatus();
  // Groups of the same size are one launch.
  for (size_t begin = 0; begin < groups.size() && launched.ok();) {
    size_t end = begin;
    while (end < groups.size() && groups[end] == groups[begin]) ++end;
    const auto [n, k] = groups[begin];
    const auto count = static_cast<int32_t>(end - begin);
    const sm90::PackArguments arguments = {
        .codes = codes,
        .scales = scales,
        .packed = packed,
        .weights = {.groups = count, .n = n, .k = k, .scale_layout = scale_layout}};
    const int64_t ctas =
        std::min(sm90::PackPieces(arguments.weights), kPackCtas * multiprocessors_);
    launched =
        LaunchKernel(context_, library_.pack(), static_cast<uint32_t>(ctas), stream_, arguments);
    codes += count * CodeBytes(n, k);
    scales += count * ScalePlaneBytes(scale_layout, n, k);
    packed += count * sm90::PackedBytes(n, k);
    begin = end;
  }
  // Also after a failed launch: earlier ones may still write.
  TETRAD_RETURN_IF_ERROR(context_.Synchronize(stream_));
  return launched;
}

}  // namespace tetrad::cuda
