// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/gemm_launch.h"

namespace tetrad::cuda {

absl::Status LaunchOn(CudaContext& context, CUstream stream, GemmLaunch& launch, bool overlaps) {
  const bool first_waits = launch.kind >= GraphKind::kHopper;
  CUlaunchAttribute behind_the_last{};
  behind_the_last.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  behind_the_last.value.programmaticStreamSerializationAllowed = 1;
  for (KernelCall& call : launch.kernels()) {
    CUlaunchConfig config{};
    config.gridDimX = call.grid;
    config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = call.kernel->threads;
    config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = call.kernel->shared_bytes;
    config.hStream = stream;
    config.attrs = &behind_the_last;
    config.numAttrs = &call != launch.calls.data() || (overlaps && first_waits) ? 1 : 0;
    void* arguments = call.address();
    TETRAD_RETURN_IF_ERROR(
        TETRAD_CUDA(context, LaunchKernelEx, &config, call.kernel->function, &arguments, nullptr));
  }
  return absl::OkStatus();
}

}  // namespace tetrad::cuda
