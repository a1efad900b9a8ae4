// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/bars/draw_sm90.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

#include "clients/cli/draw.h"
#include "kernels/random.h"
#include "kernels/sm90/instances.h"

namespace tetrad::bars {
namespace {

constexpr int32_t kMultiprocessors = 132, kStripColumns = 128;
constexpr int32_t kDepths[] = {32, 64, 96};
// Which instances cases are made for; the third is seldom chosen for what suits it.
constexpr size_t kTargets[] = {0, 1, 2, 2, 2, 3, 4, 5};

// Rows that one or, seldom, two of the instance's tiles cover, all but a few of them live.
int32_t RowsFor(Random& random, const sm90::Instance& instance) {
  int32_t widths = 0;
  while (widths < sm90::kMaxWidths && instance.widths[widths] > 0) ++widths;
  int32_t rows = 0;
  for (int32_t tiles = random.OneIn(4) ? 2 : 1; tiles > 0; --tiles) {
    rows += instance.widths[random.Below(static_cast<uint32_t>(widths))];
  }
  return std::max(1, rows - random.Between(0, 5));
}

}  // namespace

cli::GroupedCase DrawSm90Case(uint64_t seed) {
  cli::GroupedCase c = cli::DrawCase(seed);
  if (seed % 2 == 0) return c;
  Random random(seed);
  const sm90::Instance& instance = sm90::kInstances[kTargets[seed / 2 % std::size(kTargets)]];
  c = {};
  c.name = absl::StrCat("random ", seed, " for ", instance.name);
  c.types.a_type = static_cast<ActivationType>(random.Below(3));
  // FP16 twice: its kernels serve NVFP4 as well, so BF16 has what is left.
  c.types.a_type = random.OneIn(2) ? ActivationType::kBf16 : c.types.a_type;
  if (c.types.a_type == ActivationType::kNvfp4 && random.OneIn(2)) {
    c.types.a_scale_layout = ScaleLayout::kBlocked;
  }
  c.types.b_scale_layout = random.OneIn(2) ? ScaleLayout::kBlocked : ScaleLayout::kLinear;
  c.types.c_type = static_cast<OutputType>(random.Below(3));
  c.form = random.OneIn(2) ? GroupForm::kStacked : GroupForm::kSeparate;
  const int32_t groups = random.Between(1, 4);
  const int32_t strips = std::max(1, kMultiprocessors * instance.strips / groups);
  const int32_t n = strips * kStripColumns - random.Between(0, 3);
  const int32_t k = kDepths[random.Below(std::size(kDepths))];
  const int32_t rows = RowsFor(random, instance);
  for (int32_t g = 0; g < groups; ++g) {
    c.groups.push_back({.m = random.OneIn(3) ? RowsFor(random, instance) : rows, .n = n, .k = k});
  }
  return c;
}

}  // namespace tetrad::bars
