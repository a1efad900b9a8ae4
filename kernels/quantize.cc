// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"

#include "kernels/float16.h"
#include "kernels/problem.h"

namespace tetrad {
namespace {

constexpr float kLeastNormal = std::numeric_limits<float>::min();

float Load(const FloatMatrix& x, int64_t row, int64_t column) {
  const int64_t index = row * x.row_stride + column * x.column_stride;
  const auto* bytes = static_cast<const std::byte*>(x.data);
  if (x.type == FloatType::kFp32) {
    float value;
    std::memcpy(&value, bytes + index * 4, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, bytes + index * 2, sizeof(bits));
  return x.type == FloatType::kFp16 ? DecodeFp16(bits) : DecodeBf16(bits);
}

absl::Status NotFinite(int64_t row, int64_t column, float value) {
  return absl::InvalidArgumentError(absl::StrCat("row ", row, " column ", column, ": ", value,
                                                 " has no NVFP4 value; it must be finite"));
}

absl::Status CheckShape(const FloatMatrix& x, size_t row_scales) {
  if (x.rows < 0) return absl::InvalidArgumentError(absl::StrCat("rows=", x.rows, " is negative"));
  if (x.k <= 0 || x.k % kKMultiple != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("k=", x.k, " must be a positive multiple of ", kKMultiple));
  }
  if (row_scales != 0 && row_scales != static_cast<size_t>(x.rows)) {
    return absl::InvalidArgumentError(
        absl::StrCat("row_scale has ", row_scales, " values for ", x.rows, " rows"));
  }
  return absl::OkStatus();
}

// The code nearest magnitude / unit. A midpoint has at most 3 significant bits
// and the unit at most 28, so the FP64 products and comparisons are exact.
uint8_t NearestMagnitude(double magnitude, double unit) {
  return static_cast<uint8_t>((magnitude > 0.25 * unit) + (magnitude >= 0.75 * unit) +
                              (magnitude > 1.25 * unit) + (magnitude >= 1.75 * unit) +
                              (magnitude > 2.5 * unit) + (magnitude >= 3.5 * unit) +
                              (magnitude > 5.0 * unit));
}

// One block: 16 values to 8 bytes of codes; returns the scale byte.
uint8_t QuantizeBlock(const float* values, float amax, float factor, uint8_t* codes) {
  const uint8_t scale = EncodeUe4m3(amax / (kE2m1Max * factor));
  std::memset(codes, 0, kScaleBlock / 2);
  if (scale == 0) return scale;
  const double unit = static_cast<double>(DecodeUe4m3(scale)) * factor;
  for (int i = 0; i < kScaleBlock; ++i) {
    const uint8_t sign = std::signbit(values[i]) ? 8 : 0;
    const uint8_t code = sign | NearestMagnitude(std::fabs(values[i]), unit);
    codes[i / 2] |= static_cast<uint8_t>(code << (i % 2 * 4));
  }
  return scale;
}

absl::Status QuantizeRow(const FloatMatrix& x, int64_t row, float factor, const Nvfp4Matrix& out) {
  for (int64_t block = 0; block < x.k / kScaleBlock; ++block) {
    float values[kScaleBlock];
    float amax = 0;
    int64_t widest = block * kScaleBlock;
    for (int i = 0; i < kScaleBlock; ++i) {
      const int64_t column = block * kScaleBlock + i;
      values[i] = Load(x, row, column);
      if (!std::isfinite(values[i])) return NotFinite(row, column, values[i]);
      if (std::fabs(values[i]) > amax) {
        amax = std::fabs(values[i]);
        widest = column;
      }
    }
    if (!std::isfinite(amax / (kE2m1Max * factor))) {
      return absl::InvalidArgumentError(absl::StrCat("row ", row, " column ", widest, ": ", amax,
                                                     " / (6 * ", factor,
                                                     ") overflows FP32; the scale is too small"));
    }
    out.scales[ScaleOffset(out.layout, row, block, x.k)] =
        QuantizeBlock(values, amax, factor, out.codes + (row * x.k + block * kScaleBlock) / 2);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Quantize(const FloatMatrix& x, float global_scale, std::span<const float> row_scale,
                      const Nvfp4Matrix& out) {
  if (absl::Status status = CheckShape(x, row_scale.size()); !status.ok()) return status;
  if (!std::isnormal(global_scale) || global_scale < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("global_scale=", global_scale, " must be a normal positive FP32 number"));
  }
  if (out.layout == ScaleLayout::kBlocked) {
    std::memset(out.scales, 0, static_cast<size_t>(ScalePlaneBytes(out.layout, x.rows, x.k)));
  }
  for (int64_t row = 0; row < x.rows; ++row) {
    const float factor = row_scale.empty() ? global_scale : global_scale * row_scale[row];
    if (!std::isnormal(factor) || factor < 0 || !std::isfinite(kE2m1Max * factor)) {
      return absl::InvalidArgumentError(
          absl::StrCat("row ", row, " column 0: global_scale * row_scale = ", factor,
                       " must be a normal positive FP32 number of at most ",
                       std::numeric_limits<float>::max() / kE2m1Max));
    }
    if (absl::Status status = QuantizeRow(x, row, factor, out); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status RowScales(const FloatMatrix& x, std::span<float> row_scale) {
  if (absl::Status status = CheckShape(x, row_scale.size()); !status.ok()) return status;
  for (int64_t row = 0; row < static_cast<int64_t>(row_scale.size()); ++row) {
    float amax = 0;
    for (int64_t column = 0; column < x.k; ++column) {
      const float value = Load(x, row, column);
      if (!std::isfinite(value)) return NotFinite(row, column, value);
      amax = std::max(amax, std::fabs(value));
    }
    row_scale[row] = amax == 0 ? 1.0f : std::max(amax / (kE2m1Max * kUe4m3Max), kLeastNormal);
  }
  return absl::OkStatus();
}

void Dequantize(const uint8_t* codes, const uint8_t* scales, ScaleLayout layout, int64_t rows,
                int64_t k, float global_scale, std::span<const float> row_scale, float* out,
                int64_t out_stride) {
  for (int64_t row = 0; row < rows; ++row) {
    const float factor = row_scale.empty() ? global_scale : global_scale * row_scale[row];
    const uint8_t* row_codes = codes + row * (k / 2);
    for (int64_t block = 0; block < k / kScaleBlock; ++block) {
      const float scale = DecodeUe4m3(scales[ScaleOffset(layout, row, block, k)]);
      for (int64_t c = block * kScaleBlock; c < (block + 1) * kScaleBlock; ++c) {
        out[row * out_stride + c] = DecodeE2m1(UnpackCode(row_codes, c)) * scale * factor;
      }
    }
  }
}

}  // namespace tetrad
