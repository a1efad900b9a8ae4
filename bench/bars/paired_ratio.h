// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// PairedRatio: how two things that take turns compare. Blocks of one alternate
// with blocks of the other, so that whatever drifts during a run moves both.
// Plain values.
#pragma once

#include <vector>

#include "bench/bars/figure.h"

namespace tetrad::bars {

class PairedRatio {
 public:
  // The times of a block of each.
  void Add(const std::vector<double>& ours, const std::vector<double>& theirs) {
    ours_.insert(ours_.end(), ours.begin(), ours.end());
    theirs_.insert(theirs_.end(), theirs.begin(), theirs.end());
    ratios_.push_back(Median(ours) / Median(theirs));
  }
  // Median of all of ours over that of all of theirs; the spread is that of the
  // pairs of blocks.
  Measured Finish() const {
    Measured measured = MedianOf(ratios_);
    measured.value = Median(ours_) / Median(theirs_);
    return measured;
  }
  Measured OursSpread() const { return MedianOf(ours_); }
  double ours() const { return Median(ours_); }
  double theirs() const { return Median(theirs_); }

 private:
  std::vector<double> ours_, theirs_, ratios_;
};

}  // namespace tetrad::bars
