// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/dtype.h"

#include <array>

namespace tetrad {
namespace {

struct Row {
  Dtype dtype;
  std::string_view name;
  int bits;
};

constexpr std::array kRows = {
    Row{Dtype::kF4, "F4", 4},
    Row{Dtype::kF6E2m3, "F6_E2M3", 6},
    Row{Dtype::kF6E3m2, "F6_E3M2", 6},
    Row{Dtype::kBool, "BOOL", 8},
    Row{Dtype::kU8, "U8", 8},
    Row{Dtype::kI8, "I8", 8},
    Row{Dtype::kF8E5m2, "F8_E5M2", 8},
    Row{Dtype::kF8E4m3, "F8_E4M3", 8},
    Row{Dtype::kF8E8m0, "F8_E8M0", 8},
    Row{Dtype::kF8E4m3Fnuz, "F8_E4M3FNUZ", 8},
    Row{Dtype::kF8E5m2Fnuz, "F8_E5M2FNUZ", 8},
    Row{Dtype::kI16, "I16", 16},
    Row{Dtype::kU16, "U16", 16},
    Row{Dtype::kF16, "F16", 16},
    Row{Dtype::kBf16, "BF16", 16},
    Row{Dtype::kI32, "I32", 32},
    Row{Dtype::kU32, "U32", 32},
    Row{Dtype::kF32, "F32", 32},
    Row{Dtype::kC64, "C64", 64},
    Row{Dtype::kF64, "F64", 64},
    Row{Dtype::kI64, "I64", 64},
    Row{Dtype::kU64, "U64", 64},
};

constexpr bool RowsFollowEnum() {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].dtype != static_cast<Dtype>(i)) return false;
  }
  return true;
}
static_assert(RowsFollowEnum());

constexpr const Row& RowOf(Dtype dtype) { return kRows[static_cast<size_t>(dtype)]; }

}  // namespace

std::string_view DtypeName(Dtype dtype) { return RowOf(dtype).name; }

int DtypeBits(Dtype dtype) { return RowOf(dtype).bits; }

std::optional<Dtype> ParseDtype(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace tetrad
