// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What this machine's cores can do right now, for the floor of a CPU plan: the
// better of FLOPs over the FMA rate and bytes over the read rate.
//
// Each call blocks for about 100 ms, starts `threads` threads of its own and
// joins them, and reports the best of several repetitions: load from elsewhere
// lowers a reading, nothing raises it. Safe to call from several threads, which
// then disturb each other's readings.
#pragma once

#include "kernels/cpu/grouped_gemm.h"

namespace tetrad::cpu {

// FP32 operations a second (two a fused multiply-add) of independent chains in
// registers; for kPortable, of the emulated fused multiply-add.
double MeasureFmaFlops(InstructionSet set, int threads);

// Bytes a second of sequential reads, all threads together, window after window
// of a buffer of 256 MiB whatever the machine: where the last-level cache holds
// more than that, this is the cache's rate.
double MeasureReadBytesPerSecond(int threads);

}  // namespace tetrad::cpu
