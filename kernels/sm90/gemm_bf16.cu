// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The Hopper grouped GEMM of BF16 tokens: an entry point for each instance of
// instances.h.
#include "kernels/sm90/gemm.cuh"

namespace tetrad::sm90 {

#define TETRAD_SM90_BF16_ENTRY(name, ...) \
  TETRAD_SM90_ENTRY(tetrad_sm90_bf16_##name, name, Bf16Format)
TETRAD_SM90_INSTANCES(TETRAD_SM90_BF16_ENTRY)
#undef TETRAD_SM90_BF16_ENTRY

}  // namespace tetrad::sm90
