// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// TETRAD_CUDA_RANGE("name"): a range of a profiler's time line, to the end of the
// block; nothing unless built with -DTETRAD_NVTX=ON.
#pragma once

#ifdef TETRAD_NVTX
#include <nvtx3/nvtx3.hpp>

namespace tetrad::cuda {
struct NvtxDomain {
  static constexpr char const* name{"tetrad"};
};
}  // namespace tetrad::cuda

#define TETRAD_CUDA_RANGE(name) \
  const ::nvtx3::scoped_range_in<::tetrad::cuda::NvtxDomain> tetrad_range(name)
#else
#define TETRAD_CUDA_RANGE(name) static_cast<void>(name)
#endif
