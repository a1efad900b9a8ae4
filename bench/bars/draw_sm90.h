// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Random legal signatures for the Hopper kernel: those of clients/cli/draw.h, and
// between them ones that fill a GPU of 132 multiprocessors with tiles of one
// instance's widths, since no small case makes the planner choose most of them. A
// pure function of the seed.
#pragma once

#include <cstdint>

#include "clients/cli/grouped_case.h"

namespace tetrad::bars {

cli::GroupedCase DrawSm90Case(uint64_t seed);

}  // namespace tetrad::bars
