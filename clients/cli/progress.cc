// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/progress.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "clients/cli/table.h"

namespace tetrad::cli {
namespace {

constexpr int kBarCells = 30;
constexpr absl::Duration kRedraw = absl::Milliseconds(100);
constexpr char kEraseLine[] = "\r\x1b[K";

}  // namespace

ProgressBar::ProgressBar(std::ostream& out, bool visible, std::string label, Unit unit)
    : out_(out), visible_(visible), label_(std::move(label)), unit_(unit) {}

ProgressBar::~ProgressBar() { Clear(); }

void ProgressBar::Update(int64_t done, int64_t total, absl::Time now) {
  if (!visible_ || now - last_ < kRedraw) return;
  last_ = now;
  drawn_ = true;
  out_ << kEraseLine << RenderProgress(label_, unit_, done, total) << std::flush;
}

void ProgressBar::Clear() {
  if (!drawn_) return;
  out_ << kEraseLine << std::flush;
  drawn_ = false;
  last_ = absl::InfinitePast();
}

std::string RenderProgress(const std::string& label, ProgressBar::Unit unit, int64_t done,
                           int64_t total) {
  const auto amount = [unit](int64_t value) {
    return unit == ProgressBar::Unit::kBytes ? FormatBytes(value) : absl::StrCat(value);
  };
  if (total <= 0) return absl::StrCat(label, " ", amount(done));
  const double fraction =
      std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  const int filled = static_cast<int>(fraction * kBarCells);
  return absl::StrCat(label, " [", std::string(filled, '#'), std::string(kBarCells - filled, '.'),
                      "] ", static_cast<int>(fraction * 100), "% ", amount(done), " of ",
                      amount(total));
}

}  // namespace tetrad::cli
