// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Faults on demand, so that a test can prove that verification notices them.
//
// The kernel sources are compiled a second time, with TETRAD_MUTANTS defined,
// into a library that only the mutant test links. There SetMutant() turns one
// fault on; everywhere else TETRAD_MUTANT(name) is the constant false and the
// hook leaves nothing behind. Not thread-safe: set the mutant, then compute.
#pragma once

#include <cstdint>
#include <string_view>

#if defined(TETRAD_MUTANTS)

namespace tetrad {

enum class Mutant : uint8_t {
  kNone,
  kNibblesSwapped,
  kScaleOffByOneBlock,
  kBlockedScalesReadAsLinear,
  kScaleBit7NotIgnored,
  kScalePaddingLeaks,
  kScaleNanIsFinite,
  kAlphaIgnored,
  kRowScaleIgnored,
  kAlphaAfterRowScale,
  kAlphaTimesRowScaleFirst,
  kLastColumnDropped,
  kLastRowDropped,
  kColumnAfterTheLastWritten,
  kStrideIgnored,
  kColumnMajorWrittenAsRowMajor,
  kRowsClampedToMicroTile,
  kKTailDropped,
  kOneProductDropped,
  kAccumulatorRestartsEachPass,
  kConversionTruncates,
  kOverflowSaturates,
  kNanNotCanonical,
  kBf16ReadAsFp16,
  kNegativeCodesLoseSign,
  kErrorWordNotSet,
  kCountNotClamped,
  kOffsetsOffByOneGroup,
  kNeighbourGroupsWeights,
  kNeighbourGroupsAlpha,
  kScaleRowBlocksNotRounded,
  kCount,
};

void SetMutant(Mutant mutant);
Mutant ActiveMutant();
std::string_view Name(Mutant mutant);

}  // namespace tetrad

#define TETRAD_MUTANT(name) (::tetrad::ActiveMutant() == ::tetrad::Mutant::name)

#else

#define TETRAD_MUTANT(name) false

#endif
