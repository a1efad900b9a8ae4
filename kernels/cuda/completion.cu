// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The completion kernel (launch.h): one thread ends a launch. It runs behind the
// GEMM kernel in stream order, so it sees all that the launch wrote.
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.cuh"

extern "C" __global__ void __launch_bounds__(32)
    tetrad_completion(const __grid_constant__ tetrad::cuda::CompletionArguments arguments) {
  using namespace tetrad::cuda;
  if (threadIdx.x != 0) return;
  LaunchState& state = *arguments.state;
  const uint64_t launch = state.launches + 1;
  const uint64_t now = GlobalTimer();
  CompletionRecord& record = arguments.records[(launch - 1) % arguments.depth];
  // The timer may tick less often than a small launch takes: 0 would say that nothing ran.
  record.device_ns = now > state.begun_ns ? now - state.begun_ns : 1;
  record.error_word = state.error_word;
  state.error_word = 0;
  state.launches = launch;
  StoreRelease(&record.sequence, launch);
}
