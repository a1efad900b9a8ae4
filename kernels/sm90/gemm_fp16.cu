// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The Hopper grouped GEMM of FP16 tokens: an entry point for each instance of
// instances.h.
#include "kernels/sm90/gemm.cuh"

namespace tetrad::sm90 {

#define TETRAD_SM90_FP16_ENTRY(name, ...) \
  TETRAD_SM90_ENTRY(tetrad_sm90_fp16_##name, name, Fp16Format)
TETRAD_SM90_INSTANCES(TETRAD_SM90_FP16_ENTRY)
#undef TETRAD_SM90_FP16_ENTRY

}  // namespace tetrad::sm90
