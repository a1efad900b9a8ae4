// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Device code that measures what a device can do at best: the rates that floors
// are computed from.
#pragma once

#include <cstdint>

namespace tetrad::cuda {

// tetrad_rate_read(const uint8_t* from, int64_t bytes, uint32_t* sink)
// Reads every byte once, 16 at a time; grid: a few CTAs a multiprocessor.
inline constexpr char kReadRateEntry[] = "tetrad_rate_read";

// tetrad_rate_mma(uint32_t* sink, int32_t repeats)
// 16-bit tensor-core multiply-adds with FP32 accumulation, operands from
// registers or shared memory, on the fastest instruction of the architecture
// (wgmma on 9.0a). One CTA adds kMmaFlopsPerRepeat * repeats FLOPs, a value that
// the image decides: tetrad_rate_mma_flops is a __device__ constant no host can
// read without the driver, so the entry writes it to sink[0] when repeats is 0.
inline constexpr char kMmaRateEntry[] = "tetrad_rate_mma";

inline constexpr int32_t kRateThreads = 256;

}  // namespace tetrad::cuda
