// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/simulation/product.h"

#include <cstring>
#include <vector>

#include "engine/simulation/random.h"

namespace tetrad::simulation {
namespace {

uint64_t Hash(std::span<const std::byte> bytes, uint64_t hash) {
  while (!bytes.empty()) {
    uint64_t word = 0;
    const size_t count = bytes.size() < sizeof(word) ? bytes.size() : sizeof(word);
    std::memcpy(&word, bytes.data(), count);
    hash = Mix(hash ^ word) + count;
    bytes = bytes.subspan(count);
  }
  return hash;
}

// Of one row of a plane of scales, which starts at `plane`.
uint64_t HashScales(std::span<const std::byte> plane, ScaleLayout layout, int64_t row, int64_t k,
                    uint64_t hash) {
  for (int64_t block = 0; block < k / kScaleBlock; ++block) {
    const auto at = static_cast<size_t>(ScaleOffset(layout, row, block, k));
    hash = Mix(hash ^ static_cast<uint64_t>(plane[at]));
  }
  return hash;
}

uint64_t Value(std::span<const std::byte> values, int64_t index) {
  uint32_t bits;
  std::memcpy(&bits, values.data() + index * 4, sizeof(bits));
  return bits;
}

// Where the rows of a group lie, however M came about.
struct Rows {
  int64_t count = 0;
  int64_t a = 0, a_scales = 0, c = 0;  // bytes
  int64_t first = 0;                   // in the stack
  int64_t c_stride = 0;
};

uint32_t LiveRows(const Signature& s, const OperandLayout& layout, const ProductOperands& operands,
                  std::vector<Rows>& rows) {
  const int64_t element = OutputElementBytes(s.types.c_type);
  for (size_t g = 0; g < s.groups.size(); ++g) {
    if (!s.device_m()) {
      const GroupOffsets& at = layout.groups[g];
      rows.push_back({s.groups[g].m, at.a, at.a_scales, at.c, at.row, at.c_stride});
      continue;
    }
    const int64_t index = static_cast<int64_t>(g);
    Rows live;
    if (s.m_source == MSource::kCounts) {
      live.count = static_cast<int32_t>(Value(operands.m_values, index));
      live.first = index * s.capacity_rows;
      if (live.count < 0 || live.count > s.capacity_rows) return kErrorCountOutOfRange;
    } else {
      live.first = static_cast<int32_t>(Value(operands.m_values, index));
      live.count = static_cast<int32_t>(Value(operands.m_values, index + 1)) - live.first;
      if ((g == 0 && live.first != 0) || live.count < 0) return kErrorOffsetsNotMonotone;
      if (live.first + live.count > s.capacity_rows) return kErrorCountOutOfRange;
    }
    const int64_t k = s.groups[g].k;
    live.a = ActivationBytes(s.types.a_type, live.first, k);
    live.a_scales = live.first * (k / kScaleBlock);  // linear
    live.c_stride = layout.c_stride;
    live.c =
        live.first * (s.types.c_layout == OutputLayout::kRowMajor ? layout.c_stride : 1) * element;
    rows.push_back(live);
  }
  return 0;
}

}  // namespace

uint32_t Product(const Signature& s, const OperandLayout& layout, const ProductOperands& operands,
                 std::span<std::byte> c) {
  std::vector<Rows> rows;
  rows.reserve(s.groups.size());
  if (const uint32_t error = LiveRows(s, layout, operands, rows); error != 0) return error;
  const auto element = static_cast<size_t>(OutputElementBytes(s.types.c_type));
  size_t b = 0, b_scales = 0;
  for (size_t g = 0; g < s.groups.size(); ++g) {
    const auto [m, n, k] = s.groups[g];
    const size_t codes = static_cast<size_t>(CodeBytes(n, k));
    uint64_t weights = Hash(operands.b.subspan(b, codes), Value(operands.alpha, int64_t(g)));
    for (int32_t row = 0; row < n; ++row) {
      weights =
          HashScales(operands.b_scales.subspan(b_scales), s.types.b_scale_layout, row, k, weights);
    }
    b += codes;
    b_scales += static_cast<size_t>(ScalePlaneBytes(s.types.b_scale_layout, n, k));
    const auto a_row = static_cast<size_t>(ActivationBytes(s.types.a_type, 1, k));
    for (int64_t row = 0; row < rows[g].count; ++row) {
      uint64_t hash =
          Hash(operands.a.subspan(static_cast<size_t>(rows[g].a) + static_cast<size_t>(row) * a_row,
                                  a_row),
               weights);
      if (s.types.a_type == ActivationType::kNvfp4) {
        hash = HashScales(operands.a_scales.subspan(static_cast<size_t>(rows[g].a_scales)),
                          s.types.a_scale_layout, row, k, hash);
      }
      if (s.row_scale) hash = Mix(hash ^ Value(operands.row_scale, rows[g].first + row));
      for (int64_t column = 0; column < n; ++column) {
        const uint64_t value = Mix(hash + static_cast<uint64_t>(column));
        const int64_t at = s.types.c_layout == OutputLayout::kRowMajor
                               ? row * rows[g].c_stride + column
                               : column * rows[g].c_stride + row;
        std::memcpy(
            c.subspan(static_cast<size_t>(rows[g].c)).data() + static_cast<size_t>(at) * element,
            &value, element);
      }
    }
  }
  return 0;
}

}  // namespace tetrad::simulation
