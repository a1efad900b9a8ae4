// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// A progress bar on one terminal line. Nothing is written unless the bar was
// made visible, so output that goes to a file or a script stays clean; redraws
// are limited to a few a second, so that reporting costs nothing. The line is
// erased when the bar ends. One thread at a time.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tetrad::cli {

class ProgressBar {
 public:
  enum class Unit { kBytes, kCount };

  // A bar that writes nothing unless `visible`.
  ProgressBar(std::ostream& out, bool visible, std::string label, Unit unit);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Draws when enough time passed since the last redraw; a total <= 0 is
  // unknown.
  void Update(int64_t done, int64_t total, absl::Time now = absl::Now());
  // Erases the line now, e.g. to print something else; the next Update redraws.
  void Clear();

 private:
  std::ostream& out_;
  const bool visible_;
  const std::string label_;
  const Unit unit_;
  bool drawn_ = false;
  absl::Time last_ = absl::InfinitePast();
};

// What the bar shows, without control characters.
std::string RenderProgress(const std::string& label, ProgressBar::Unit unit, int64_t done,
                           int64_t total);

}  // namespace tetrad::cli
