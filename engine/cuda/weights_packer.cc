// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/weights_packer.h"

#include <algorithm>
#include <span>

#include "engine/support/no_memory.h"
#include "engine/support/status_macros.h"
#include "kernels/sm90/pack.h"

namespace tetrad::cuda {
namespace {

constexpr int64_t kPackCtas = 8;  // on a multiprocessor

CUdeviceptr At(CUdeviceptr base, int64_t offset) { return base + static_cast<CUdeviceptr>(offset); }

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

absl::Status WeightsPacker::Pack(const PackingBatches& batches, CUdeviceptr memory, int64_t scales,
                                 CUdeviceptr scratch, int64_t scratch_bytes) {
  TETRAD_RETURN_IF_ERROR(context_.Enter());
  // Whatever ends it: what was enqueued before still uses the memory.
  absl::Status enqueued =
      CatchNoMemory([&] { return Enqueue(batches, memory, scales, scratch, scratch_bytes); });
  TETRAD_RETURN_IF_ERROR(context_.Synchronize(stream_));
  return enqueued;
}

absl::Status WeightsPacker::Enqueue(const PackingBatches& batches, CUdeviceptr memory,
                                    int64_t scales, CUdeviceptr scratch, int64_t scratch_bytes) {
  if (batches.groups().empty()) return absl::OkStatus();
  TETRAD_RETURN_IF_ERROR(Copy(scratch, At(memory, scales), batches.scale_bytes()));
  const CUdeviceptr codes = At(scratch, batches.scratch_codes());
  return batches.ForEach(scratch_bytes, [&](const PackingBatch& batch) -> absl::Status {
    TETRAD_RETURN_IF_ERROR(Copy(codes, At(memory, batch.codes), batch.code_bytes));
    return PackBatch(batches, batch, codes, At(scratch, batch.scales), At(memory, batch.packed));
  });
}

absl::Status WeightsPacker::Copy(CUdeviceptr to, CUdeviceptr from, int64_t bytes) {
  return TETRAD_CUDA(context_, MemcpyDtoDAsync, to, from, static_cast<size_t>(bytes), stream_);
}

absl::Status WeightsPacker::PackBatch(const PackingBatches& batches, const PackingBatch& batch,
                                      CUdeviceptr codes, CUdeviceptr scales, CUdeviceptr packed) {
  const std::span<const GroupDims> groups = batches.groups();
  for (size_t begin = batch.begin; begin < batch.end;) {
    size_t end = begin;
    while (end < batch.end && groups[end] == groups[begin]) ++end;
    const auto [n, k] = groups[begin];
    const auto count = static_cast<int32_t>(end - begin);
    const sm90::PackArguments arguments = {
        .codes = reinterpret_cast<const uint8_t*>(codes),
        .scales = reinterpret_cast<const uint8_t*>(scales),
        .packed = reinterpret_cast<uint8_t*>(packed),
        .weights = {.groups = count, .n = n, .k = k, .scale_layout = batches.scale_layout()}};
    const int64_t ctas =
        std::min(sm90::PackPieces(arguments.weights), kPackCtas * multiprocessors_);
    TETRAD_RETURN_IF_ERROR(
        LaunchKernel(context_, library_.pack(), static_cast<uint32_t>(ctas), stream_, arguments));
    codes = At(codes, count * CodeBytes(n, k));
    scales = At(scales, count * ScalePlaneBytes(batches.scale_layout(), n, k));
    packed = At(packed, count * sm90::PackedBytes(n, k));
    begin = end;
  }
  return absl::OkStatus();
}

}  // namespace tetrad::cuda
