// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cpu/grouped_gemm.h"
#include "kernels/mutant.h"

namespace tetrad::cpu {
namespace {

// Where one group lies in the stacked operands.
struct Place {
  int64_t row = 0;        // of A, C and row_scale
  int64_t scale_row = 0;  // of the plane of A's scales
  int32_t m = 0;
};

GroupProblem FormGroup(const DeviceMProblem& base, const ProblemTypes& types, int64_t group,
                       const Place& place) {
  const int64_t n = base.n;
  const int64_t k = base.k;
  const int64_t weights = TETRAD_MUTANT(kNeighbourGroupsWeights) && group > 0 ? group - 1 : group;
  const int64_t factor = TETRAD_MUTANT(kNeighbourGroupsAlpha) && group > 0 ? group - 1 : group;
  const int64_t c_element =
      types.c_layout == OutputLayout::kRowMajor ? place.row * base.c_stride : place.row;
  GroupProblem result;
  result.a = base.a + ActivationBytes(types.a_type, place.row, k);
  if (base.a_scales != nullptr) {
    result.a_scales = base.a_scales + ScalePlaneBytes(types.a_scale_layout, place.scale_row, k);
  }
  result.b = base.b + weights * CodeBytes(n, k);
  result.b_scales = base.b_scales + weights * ScalePlaneBytes(types.b_scale_layout, n, k);
  result.c = static_cast<std::byte*>(base.c) + c_element * OutputElementBytes(types.c_type);
  if (base.row_scale != nullptr) result.row_scale = base.row_scale + place.row;
  result.c_stride = base.c_stride;
  result.m = place.m;
  result.n = base.n;
  result.k = base.k;
  result.alpha = base.alpha != nullptr ? base.alpha[factor] : 1.0f;
  return result;
}

// Blocked scale planes of consecutive groups begin at multiples of 128 rows.
int64_t ScaleRows(ScaleLayout layout, int64_t rows) {
  if (layout == ScaleLayout::kLinear || TETRAD_MUTANT(kScaleRowBlocksNotRounded)) return rows;
  return RoundUp(rows, kScaleTileRows);
}

}  // namespace

void StackedGroups(const DeviceMProblem& base, const ProblemTypes& types,
                   std::span<const int32_t> m, std::span<GroupProblem> groups) {
  Place place;
  for (size_t g = 0; g < groups.size(); ++g) {
    place.m = m[g];
    groups[g] = FormGroup(base, types, static_cast<int64_t>(g), place);
    place.row += place.m;
    place.scale_row += ScaleRows(types.a_scale_layout, place.m);
  }
}

void ResolveDeviceM(const DeviceMProblem& problem, const ProblemTypes& types,
                    std::span<GroupProblem> groups, uint32_t* error) {
  uint32_t errors = 0;
  const int64_t capacity = problem.capacity_rows;
  // Another process may rewrite the values at any time: one volatile read each.
  const volatile int32_t* values = problem.m_values;
  const auto clamp = [&](int64_t value, int64_t least) {
    if (value < 0 || value > capacity) errors |= kErrorCountOutOfRange;
    if (TETRAD_MUTANT(kCountNotClamped)) return value;
    return std::clamp(value, least, capacity);
  };
  if (problem.m_source == MSource::kCounts) {
    for (int64_t g = 0; g < problem.groups; ++g) {
      const int64_t from = TETRAD_MUTANT(kOffsetsOffByOneGroup) && g > 0 ? g - 1 : g;
      Place place;
      place.row = g * capacity;
      place.scale_row = g * ScaleRows(types.a_scale_layout, capacity);
      place.m = static_cast<int32_t>(clamp(values[from], 0));
      groups[g] = FormGroup(problem, types, g, place);
    }
  } else {
    const int64_t first = values[0];
    if (first != 0) errors |= kErrorOffsetsNotMonotone;
    Place place;
    place.row = clamp(first, 0);
    for (int64_t g = 0; g < problem.groups; ++g) {
      const int64_t end = values[TETRAD_MUTANT(kOffsetsOffByOneGroup) ? g : g + 1];
      if (end < place.row) errors |= kErrorOffsetsNotMonotone;
      place.m = static_cast<int32_t>(clamp(end, place.row) - place.row);
      groups[g] = FormGroup(problem, types, g, place);
      place.row += place.m;
      place.scale_row += ScaleRows(types.a_scale_layout, place.m);
    }
  }
  if (!TETRAD_MUTANT(kErrorWordNotSet)) *error |= errors;
}

}  // namespace tetrad::cpu
