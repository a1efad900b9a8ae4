// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/draw.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace tetrad::cli {
namespace {

// SplitMix64: tiny, stateless to seed, and fixed by its definition, unlike the
// distributions of <random>.
class Draw {
 public:
  explicit Draw(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  // Uniform in [low, high].
  int64_t Range(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Next() % static_cast<uint64_t>(high - low + 1));
  }
  bool Chance(int percent) { return Range(0, 99) < percent; }
  template <typename T, size_t kSize>
  T Pick(const T (&values)[kSize]) {
    return values[Range(0, kSize - 1)];
  }
  template <typename Enum>
  Enum Any(Enum last) {
    return static_cast<Enum>(Range(0, static_cast<int64_t>(last)));
  }

 private:
  uint64_t state_;
};

// Sizes at and beside tile and vector borders.
constexpr int32_t kEdgeRows[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 257};
constexpr int32_t kEdgeColumns[] = {1,  2,  3,  7,  8,   15,  16,  17,  31,
                                    33, 63, 64, 65, 127, 128, 129, 255, 384};
constexpr int32_t kEdgeDepths[] = {32,  64,   96,   128,  160,  192, 256,
                                   512, 1024, 1536, 2048, 4096, 7168};

int64_t DrawGroupCount(Draw& draw) {
  const int64_t kind = draw.Range(0, 99);
  if (kind < 20) return 1;
  if (kind < 65) return draw.Range(2, 8);
  if (kind < 90) return draw.Range(9, 64);
  return draw.Range(65, 400);
}

int32_t DrawRows(Draw& draw) {
  const int64_t kind = draw.Range(0, 99);
  if (kind < 20) return 0;
  if (kind < 50) return draw.Pick(kEdgeRows);
  if (kind < 80) return static_cast<int32_t>(draw.Range(1, 16));
  return static_cast<int32_t>(draw.Range(1, 300));
}

int32_t DrawColumns(Draw& draw) {
  return draw.Chance(50) ? draw.Pick(kEdgeColumns) : static_cast<int32_t>(draw.Range(1, 300));
}

int32_t DrawDepth(Draw& draw) {
  return draw.Chance(60) ? draw.Pick(kEdgeDepths) : static_cast<int32_t>(32 * draw.Range(1, 40));
}

// Halves the largest group (or, if weights outweigh work, all depths) until
// the case fits; what was drawn small stays as drawn.
void Shrink(GroupedCase& c) {
  const auto weight_elements = [&c] {
    double elements = 0;
    for (const CaseGroup& g : c.groups) elements += 1.0 * g.n * g.k;
    return elements;
  };
  const auto halve_depth = [](int32_t k) {
    return static_cast<int32_t>(std::max<int64_t>(32, RoundUp(k / 2, 32)));
  };
  while (weight_elements() > kMaxDrawnMacs) {
    for (CaseGroup& g : c.groups) {
      if (g.k > 32) {
        g.k = halve_depth(g.k);
      } else {
        g.n = std::max(1, g.n / 2);
      }
    }
  }
  while (c.flops() / 2 > kMaxDrawnMacs) {
    const auto work = [](const CaseGroup& g) { return 1.0 * g.m * g.n * g.k; };
    CaseGroup& largest = *std::max_element(
        c.groups.begin(), c.groups.end(),
        [&work](const CaseGroup& a, const CaseGroup& b) { return work(a) < work(b); });
    largest.m /= 2;
  }
}

void DrawStride(Draw& draw, GroupedCase& c) {
  if (!draw.Chance(50)) return;  // dense
  int64_t least = 1;
  for (const CaseGroup& g : c.groups) {
    const bool column_major = c.types.c_layout == OutputLayout::kColumnMajor;
    const int64_t rows = c.form == GroupForm::kStacked ? c.rows() : g.m;
    least = std::max<int64_t>(least, column_major ? rows : g.n);
  }
  constexpr int64_t kSlack[] = {0, 1, 3, 8, 64};
  c.c_stride = least + draw.Pick(kSlack);
}

void DrawCapacity(Draw& draw, GroupedCase& c) {
  constexpr int64_t kSlack[] = {0, 1, 5, 64, 130};
  if (c.m_source == MSource::kOffsets) {
    c.capacity_rows = std::max<int64_t>(1, c.live_rows() + draw.Pick(kSlack));
  } else if (c.m_source == MSource::kCounts) {
    int64_t most = 1;
    for (const CaseGroup& g : c.groups) most = std::max<int64_t>(most, g.m);
    // Many groups times a large reserve is memory, not coverage.
    const int64_t slack = draw.Pick(kSlack);
    c.capacity_rows = most + (c.groups.size() > 64 ? std::min<int64_t>(slack, 5) : slack);
  }
}

}  // namespace

GroupedCase DrawCase(uint64_t seed) {
  Draw draw(seed);
  GroupedCase c;
  c.name = absl::StrCat("random:", seed, ":1");
  c.types.a_type = draw.Any(ActivationType::kBf16);
  c.types.c_type = draw.Any(OutputType::kFp32);
  const ScaleLayout a_scales = draw.Any(ScaleLayout::kBlocked);
  if (c.types.a_type == ActivationType::kNvfp4) c.types.a_scale_layout = a_scales;
  c.types.b_scale_layout = draw.Any(ScaleLayout::kBlocked);
  c.types.c_layout = draw.Any(OutputLayout::kColumnMajor);
  c.form = draw.Any(GroupForm::kStacked);
  if (c.form == GroupForm::kStacked) c.m_source = draw.Any(MSource::kCounts);
  c.row_scale = draw.Chance(50);
  c.alpha_a = draw.Chance(50);
  c.alpha_b = draw.Chance(50);

  c.groups.resize(static_cast<size_t>(DrawGroupCount(draw)));
  // A stack has one n and k; separate groups have their own, half of the time.
  const bool uniform = c.form == GroupForm::kStacked || draw.Chance(50);
  CaseGroup shared{0, DrawColumns(draw), DrawDepth(draw)};
  const bool all_empty = draw.Chance(2);
  for (CaseGroup& g : c.groups) {
    g = uniform ? shared : CaseGroup{0, DrawColumns(draw), DrawDepth(draw)};
    g.m = all_empty ? 0 : DrawRows(draw);
  }
  Shrink(c);
  DrawCapacity(draw, c);
  DrawStride(draw, c);
  return c;
}

std::array<DataKind, 2> DataKindsFor(const GroupedCase& c) {
  const bool scaled = c.alpha_a || c.alpha_b;
  const bool narrow = c.types.c_type == OutputType::kFp16;
  // Without an alpha that brings them into its range, most FP16 outputs of
  // arbitrary data would be infinite and show nothing.
  return {scaled || !narrow ? DataKind::kExact : DataKind::kContest,
          scaled ? DataKind::kGeneral : DataKind::kNormal};
}

}  // namespace tetrad::cli
