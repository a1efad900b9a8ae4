// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Device code that measures what a device can do at best: the rates that floors
// are computed from. CTAs of kRateThreads.
#pragma once

#include <cstdint>

namespace tetrad::cuda {

// tetrad_rate_read(const uint8_t* from, int64_t bytes, uint32_t* sink)
// Reads every byte once, 16 at a time; `from` is a multiple of 16; grid: a few
// CTAs a multiprocessor. Writes to *sink, or not, so that no read is left out.
inline constexpr char kReadRateEntry[] = "tetrad_rate_read";

// tetrad_rate_mma(uint32_t* sink, int32_t repeats)
// FP16 tensor-core multiply-adds with FP32 accumulation on dequantised FP4
// values, by the fastest instruction of the architecture: wgmma with operands in
// shared memory where the image is for 9.0a, else mma.sync with operands in
// registers. Grid: kMmaRateCtas a multiprocessor. A CTA does
// kMmaFlopsPerRepeat * repeats operations (two a multiply-add), whatever the
// image. Writes to *sink, or not, so that no product is left out.
inline constexpr char kMmaRateEntry[] = "tetrad_rate_mma";
inline constexpr int64_t kMmaFlopsPerRepeat = int64_t{1} << 22;
inline constexpr int32_t kMmaRateCtas = 1;

inline constexpr int32_t kRateThreads = 256;

}  // namespace tetrad::cuda
