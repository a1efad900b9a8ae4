// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// FP32, FP16 or BF16 values to NVFP4 and back.
//
//   factor(r)   = fl32(global_scale * row_scale[r])            row_scale absent: 1
//   scale(r,j)  = EncodeUe4m3(fl32(amax / fl32(6 * factor)))   amax over the 16 values of block j
//   code(r,c)   = the E2M1 value nearest x / (scale * factor), ties to even, decided exactly
//   x           ~ code * scale * factor
//
// A block whose scale encodes to 0 gets codes 0. Above 448 a scale saturates,
// above 6 a code does. The same bits follow on any platform with IEEE FP32
// division and FP64 products. NaN, infinity and a factor that is not a normal
// positive number are refused with row and column; the output is then
// unspecified, but only the output.
//
// Thread-safe, allocation-free but for error texts. Nothing is owned.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"

#include "kernels/nvfp4.h"

namespace tetrad {

enum class FloatType : uint8_t { kFp32 = 0, kFp16 = 1, kBf16 = 2 };

// Element (r, c) is at data + r * row_stride + c * column_stride, in elements;
// strides may be negative or zero.
struct FloatMatrix {
  const void* data = nullptr;
  FloatType type = FloatType::kFp32;
  int64_t rows = 0;
  int64_t k = 0;
  int64_t row_stride = 0;
  int64_t column_stride = 1;
};

// Codes are packed [rows, k/2]; scales fill ScalePlaneBytes(layout, rows, k).
struct Nvfp4Matrix {
  uint8_t* codes = nullptr;
  uint8_t* scales = nullptr;
  ScaleLayout layout = ScaleLayout::kLinear;
};

// `row_scale` is empty or holds one factor per row. Padding of a blocked plane
// is zeroed. k must be a multiple of 32.
absl::Status Quantize(const FloatMatrix& x, float global_scale, std::span<const float> row_scale,
                      const Nvfp4Matrix& out);

// The factor per row that lets its largest magnitude meet 6 * 448 with global
// scale 1: fl32(amax / 2688), not below the least normal number; 1 for zeros.
absl::Status RowScales(const FloatMatrix& x, std::span<float> row_scale);

// out(r, c) = fl32(code * scale * factor(r)) at out + r * out_stride + c. A NaN
// scale gives NaN.
void Dequantize(const uint8_t* codes, const uint8_t* scales, ScaleLayout layout, int64_t rows,
                int64_t k, float global_scale, std::span<const float> row_scale, float* out,
                int64_t out_stride);

}  // namespace tetrad
