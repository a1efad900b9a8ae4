// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The portable CUDA kernel: every legal signature, on every device from compute
// capability 8.0 on. Where no faster kernel fits it serves; everywhere it is the
// oracle of the faster ones on the device.
//
// Its bits do not depend on tiles, M, neighbours, strides or addresses: each
// output element is the FP32 accumulation of m16n8k16 tensor-core steps over
// k = 0, 16, 32, ... in this order.
#pragma once

#include <cstdint>

#include "kernels/problem.h"

namespace tetrad::cuda {

inline constexpr int32_t kPortableThreads = 256;
// The largest tile of a CTA; columns of smaller ones are multiples of the
// granule but at the end of a group, rows are free.
inline constexpr int32_t kPortableTileRows = 128;
inline constexpr int32_t kPortableTileColumns = 128;
inline constexpr int32_t kPortableRowGranule = 16;
inline constexpr int32_t kPortableColumnGranule = 64;
// Dynamic shared memory of a CTA, bytes.
inline constexpr int32_t kPortableSharedBytes = 2 * 2 * 128 * 64 * 2;
// CTAs of a multiprocessor that its registers and shared memory allow (checked
// against the driver's answer when the kernel is loaded).
inline constexpr int32_t kPortableCtasPerMultiprocessor = 2;

// The entry point takes a LaunchArguments; grid: with host M as many CTAs as
// cta_begin says, with device-side M any number.
constexpr const char* PortableEntry(ActivationType type) {
  switch (type) {
    case ActivationType::kNvfp4:
      return "tetrad_portable_nvfp4";
    case ActivationType::kFp16:
      return "tetrad_portable_fp16";
    case ActivationType::kBf16:
      return "tetrad_portable_bf16";
  }
  return "";
}

}  // namespace tetrad::cuda
