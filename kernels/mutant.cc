// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/mutant.h"

#include <iterator>

namespace tetrad {
namespace {

Mutant active = Mutant::kNone;

constexpr std::string_view kNames[] = {
    "none",
    "nibbles swapped",
    "scale off by one block",
    "blocked scales read as linear",
    "scale bit 7 not ignored",
    "scale padding leaks",
    "scale NaN is finite",
    "alpha ignored",
    "row scale ignored",
    "alpha after row scale",
    "alpha times row scale first",
    "last column dropped",
    "last row dropped",
    "column after the last written",
    "stride ignored",
    "column-major written as row-major",
    "rows clamped to the micro tile",
    "K tail dropped",
    "one product dropped",
    "accumulator restarts each pass",
    "conversion truncates",
    "overflow saturates",
    "NaN not canonical",
    "BF16 read as FP16",
    "negative codes lose their sign",
    "error word not set",
    "count not clamped",
    "offsets off by one group",
    "neighbour group's weights",
    "neighbour group's alpha",
    "scale row-blocks not rounded",
};
static_assert(std::size(kNames) == static_cast<size_t>(Mutant::kCount));

}  // namespace

void SetMutant(Mutant mutant) { active = mutant; }
Mutant ActiveMutant() { return active; }
std::string_view Name(Mutant mutant) { return kNames[static_cast<size_t>(mutant)]; }

}  // namespace tetrad
