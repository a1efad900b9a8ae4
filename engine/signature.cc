// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/signature.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"
#include "kernels/sm90/packed_weights.h"

namespace tetrad {
namespace {

template <typename Enum>
absl::Status CheckEnum(absl::string_view field, Enum value, int count) {
  const int number = static_cast<int>(value);
  if (number < 0 || number >= count) {
    return FieldError(
        {absl::StrCat("signature.", field), absl::StrCat(number), absl::StrCat("0 to ", count - 1)},
        Reason::kUnknownEnumValue,
        absl::StrCat(field, "=", number, " is not one of the ", count, " known values"));
  }
  return absl::OkStatus();
}

absl::Status CheckEnums(const Signature& s) {
  TETRAD_RETURN_IF_ERROR(CheckEnum("activation_type", s.types.a_type, 3));
  TETRAD_RETURN_IF_ERROR(CheckEnum("output_type", s.types.c_type, 3));
  TETRAD_RETURN_IF_ERROR(CheckEnum("activation_scale_layout", s.types.a_scale_layout, 2));
  TETRAD_RETURN_IF_ERROR(CheckEnum("weights scale_layout", s.types.b_scale_layout, 3));
  TETRAD_RETURN_IF_ERROR(CheckEnum("output_layout", s.types.c_layout, 2));
  TETRAD_RETURN_IF_ERROR(CheckEnum("epilogue", s.types.epilogue, 1));
  TETRAD_RETURN_IF_ERROR(CheckEnum("group_form", s.form, 2));
  return CheckEnum("m_source", s.m_source, 3);
}

absl::Status CheckGroups(const Signature& s) {
  GroupErrors errors;
  for (size_t g = 0; g < s.groups.size(); ++g) {
    const GroupShape& shape = s.groups[g];
    const auto add = [&errors, g](const char* list, const char* name, int64_t value,
                                  auto... limit) {
      errors.Add([&]() -> FieldViolation {
        return {absl::StrCat(list, "[", g, "]", name), absl::StrCat(value), absl::StrCat(limit...),
                static_cast<int64_t>(g)};
      });
    };
    if (shape.n < 1) add("groups", ".n", shape.n, "at least 1");
    if (shape.k < 1 || shape.k % kKMultiple != 0) {
      add("groups", ".k", shape.k, "a positive multiple of ", kKMultiple);
    }
    if (shape.m < 0) add("signature.exact.m", "", shape.m, "at least 0");
    if (s.device_m() && shape.m > 0) {
      add("signature.exact.m", "", shape.m, "0: it is read from device memory");
    }
  }
  return errors.status();
}

// In the stacked form all groups are one tensor.
absl::Status CheckStack(const Signature& s) {
  for (size_t g = 0; s.form == GroupForm::kStacked && g < s.groups.size(); ++g) {
    const GroupShape& shape = s.groups[g];
    if (shape.n == s.groups[0].n && shape.k == s.groups[0].k) continue;
    return FieldError(
        {"signature.group_form", "STACKED", "groups of one shape", static_cast<int64_t>(g)},
        Reason::kFieldConflict,
        absl::StrCat("group ", g, ": n=", shape.n, " k=", shape.k, " must equal n=", s.groups[0].n,
                     " k=", s.groups[0].k, " of group 0 in the stacked form"));
  }
  return absl::OkStatus();
}

// The stride of C, in elements, that leaves no gaps in group `shape`.
int64_t DenseStride(const Signature& s, const GroupShape& shape, int64_t stack_rows) {
  if (s.types.c_layout == OutputLayout::kRowMajor) return shape.n;
  return s.form == GroupForm::kStacked ? stack_rows : shape.m;
}

absl::Status CheckStride(const Signature& s) {
  if (s.c_stride < 0) {
    return FieldError({"signature.output_stride", absl::StrCat(s.c_stride), "at least 0"},
                      Reason::kFieldOutOfRange,
                      absl::StrCat("output_stride=", s.c_stride, " must not be negative"));
  }
  if (s.c_stride == 0) return absl::OkStatus();
  const int64_t stack_rows = s.rows();
  for (size_t g = 0; g < s.groups.size(); ++g) {
    const int64_t dense = DenseStride(s, s.groups[g], stack_rows);
    if (s.c_stride < dense) {
      return FieldError({"signature.output_stride", absl::StrCat(s.c_stride),
                         absl::StrCat("0 or at least ", dense), static_cast<int64_t>(g)},
                        Reason::kFieldOutOfRange,
                        absl::StrCat("group ", g, ": output_stride=", s.c_stride,
                                     " must be at least ", dense, " (0 means dense)"));
    }
  }
  return absl::OkStatus();
}

constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max();

absl::Status BadCapacity(const Signature& s, std::string limit, absl::string_view complaint) {
  return FieldError({"signature.capacity.rows", absl::StrCat(s.capacity_rows), std::move(limit)},
                    Reason::kFieldOutOfRange,
                    absl::StrCat("capacity: rows=", s.capacity_rows, complaint));
}

// Sizes are computed in long double first: far cheaper to reason about than
// overflow of each int64 step, and exact to one part in 2^63.
absl::Status CheckSizes(const Signature& s, const SignatureLimits& limits) {
  long double a = 0, c = 0, b = 0, row_blocks = 0;
  int64_t stack_rows = 0;
  for (const GroupShape& shape : s.groups) {
    b += static_cast<long double>(shape.n) * shape.k / 2;
    stack_rows += shape.m;
  }
  if (s.device_m()) {
    const long double rows = s.m_source == MSource::kCounts
                                 ? static_cast<long double>(s.capacity_rows) * s.groups.size()
                                 : s.capacity_rows;
    if (rows > kMostRows) {
      return BadCapacity(s, absl::StrCat("at most ", kMostRows, " over all groups"),
                         absl::StrCat(" reserve more than ", kMostRows, " rows in total"));
    }
    stack_rows = static_cast<int64_t>(rows);
  }
  const int64_t max_k = std::max_element(s.groups.begin(), s.groups.end(), [](auto& x, auto& y) {
                          return x.k < y.k;
                        })->k;
  row_blocks = static_cast<long double>(stack_rows) + 128.0L * s.groups.size();
  a = static_cast<long double>(stack_rows) * max_k * 2;
  if (s.form == GroupForm::kStacked) {
    const GroupShape& shape = s.groups[0];
    const int64_t dense = DenseStride(s, shape, stack_rows);
    const long double lines = s.types.c_layout == OutputLayout::kRowMajor ? stack_rows : shape.n;
    c = lines * std::max(s.c_stride, dense);
  } else {
    for (const GroupShape& shape : s.groups) {
      const long double lines = s.types.c_layout == OutputLayout::kRowMajor ? shape.m : shape.n;
      c += lines * std::max(s.c_stride, DenseStride(s, shape, stack_rows)) + 64;
    }
  }
  const struct {
    const char* name;
    long double bytes;
  } sizes[] = {{"activations", a},
               {"activation_scales", row_blocks * (max_k / 16 + 4)},
               {"weights", b},
               {"output", c * OutputElementBytes(s.types.c_type)}};
  for (const auto& [name, bytes] : sizes) {
    if (bytes > limits.max_operand_bytes) {
      return FieldError({s.device_m() ? "signature.capacity.rows" : "signature.exact.m",
                         absl::StrCat(static_cast<double>(bytes), " bytes of ", name),
                         absl::StrCat("at most ", limits.max_operand_bytes, " bytes")},
                        Reason::kFieldOutOfRange,
                        absl::StrCat(name, ": needs ", static_cast<double>(bytes),
                                     " bytes, more than the limit ", limits.max_operand_bytes));
    }
  }
  return absl::OkStatus();
}

}  // namespace

int64_t Signature::rows() const {
  if (m_source == MSource::kCounts) return capacity_rows * static_cast<int64_t>(groups.size());
  if (m_source == MSource::kOffsets) return capacity_rows;
  int64_t rows = 0;
  for (const GroupShape& shape : groups) rows += shape.m;
  return rows;
}

absl::StatusOr<Signature> Canonicalize(Signature s, const SignatureLimits& limits) {
  TETRAD_RETURN_IF_ERROR(CheckEnums(s));
  const int64_t groups = static_cast<int64_t>(s.groups.size());
  if (groups < 1 || groups > limits.max_groups) {
    return FieldError(
        {"signature.weights", absl::StrCat(groups, " groups"),
         absl::StrCat("1 to ", limits.max_groups, " groups")},
        Reason::kFieldOutOfRange,
        groups < 1 ? "groups=0 must be at least 1"
                   : absl::StrCat("groups=", groups, " exceeds the limit ", limits.max_groups));
  }
  if (s.device_m()) {
    if (s.form != GroupForm::kStacked) {
      return FieldError({"signature.group_form", "", "STACKED"}, Reason::kFieldConflict,
                        "group_form: device-side M needs the stacked form");
    }
    if (s.capacity_rows < 1) {
      return BadCapacity(s, "at least 1", " must be at least 1");
    }
    if (s.capacity_rows > kMostRows) {
      return BadCapacity(s, absl::StrCat("at most ", kMostRows),
                         absl::StrCat(" exceeds the limit ", kMostRows));
    }
  } else if (s.capacity_rows != 0) {
    return BadCapacity(s, "0", " must be 0 with exact m");
  }
  TETRAD_RETURN_IF_ERROR(CheckGroups(s));
  TETRAD_RETURN_IF_ERROR(CheckStack(s));
  TETRAD_RETURN_IF_ERROR(CheckSizes(s, limits));
  TETRAD_RETURN_IF_ERROR(CheckStride(s));

  if (s.types.a_type != ActivationType::kNvfp4) s.types.a_scale_layout = ScaleLayout::kLinear;
  const int64_t stack_rows = s.rows();
  const bool dense = std::all_of(s.groups.begin(), s.groups.end(), [&](const GroupShape& shape) {
    return s.c_stride == DenseStride(s, shape, stack_rows);
  });
  if (dense) s.c_stride = 0;
  return s;
}

OperandLayout LayOut(const Signature& s, int64_t alignment) {
  OperandLayout layout;
  layout.rows = s.rows();
  const bool row_major = s.types.c_layout == OutputLayout::kRowMajor;
  const bool stacked = s.form == GroupForm::kStacked;
  const int64_t element = OutputElementBytes(s.types.c_type);
  const bool nvfp4 = s.types.a_type == ActivationType::kNvfp4;
  const int64_t n0 = s.groups[0].n, k0 = s.groups[0].k;
  const int64_t stack_stride =
      s.c_stride != 0 ? s.c_stride : DenseStride(s, s.groups[0], layout.rows);

  if (s.device_m()) {
    const int64_t groups = static_cast<int64_t>(s.groups.size());
    layout.m_values = s.m_source == MSource::kOffsets ? groups + 1 : groups;
    layout.a_bytes = ActivationBytes(s.types.a_type, layout.rows, k0);
    if (nvfp4 && s.types.a_scale_layout == ScaleLayout::kLinear) {
      layout.a_scale_bytes = ScalePlaneBytes(ScaleLayout::kLinear, layout.rows, k0);
    } else if (nvfp4) {
      // Offsets: sum of ceil(M_i/128) <= (rows + 127 * groups) / 128 for any split of the rows.
      const int64_t row_blocks =
          s.m_source == MSource::kCounts
              ? groups * CeilDiv(s.capacity_rows, kScaleTileRows)
              : std::min(layout.rows, (layout.rows + 127 * groups) / kScaleTileRows);
      layout.a_scale_bytes = row_blocks * CeilDiv(k0, 64) * kScaleTileBytes;
    }
    layout.c_stride = stack_stride;
    layout.c_bytes = (row_major ? layout.rows : n0) * stack_stride * element;
    layout.c_has_gaps = true;
    return layout;
  }

  layout.groups.reserve(s.groups.size());
  int64_t row = 0, c_end = 0;
  for (const GroupShape& shape : s.groups) {
    GroupOffsets at;
    if (!stacked) {
      layout.a_bytes = RoundUp(layout.a_bytes, alignment);
      layout.a_scale_bytes = RoundUp(layout.a_scale_bytes, alignment);
      c_end = RoundUp(c_end, alignment);
    }
    at.a = layout.a_bytes;
    at.a_scales = layout.a_scale_bytes;
    at.row = row;
    layout.a_bytes += ActivationBytes(s.types.a_type, shape.m, shape.k);
    if (nvfp4) {
      layout.a_scale_bytes += ScalePlaneBytes(s.types.a_scale_layout, shape.m, shape.k);
    }
    if (stacked) {
      at.c_stride = std::max<int64_t>(stack_stride, 1);
      at.c = row * (row_major ? stack_stride : 1) * element;
    } else {
      const int64_t dense = row_major ? shape.n : shape.m;
      at.c_stride = std::max<int64_t>(s.c_stride != 0 ? s.c_stride : dense, 1);
      at.c = c_end;
      // An empty group has no output, whatever its stride.
      if (shape.m > 0) c_end += (row_major ? shape.m : shape.n) * at.c_stride * element;
    }
    row += shape.m;
    layout.groups.push_back(at);
  }
  if (stacked && row > 0) c_end = (row_major ? row : n0) * stack_stride * element;
  layout.c_bytes = c_end;
  layout.c_has_gaps = s.c_stride != 0;
  return layout;
}

int64_t WeightCodeBytes(const Signature& s) {
  int64_t bytes = 0;
  const bool packed = s.types.b_scale_layout == ScaleLayout::kPacked;
  for (const GroupShape& shape : s.groups) {
    bytes += packed ? sm90::PackedBytes(shape.n, shape.k) : CodeBytes(shape.n, shape.k);
  }
  return bytes;
}

int64_t PackedWeightBytes(std::span<const GroupDims> groups) {
  int64_t bytes = 0;
  for (const GroupDims& dims : groups) bytes += sm90::PackedBytes(dims.n, dims.k);
  return bytes;
}

int64_t WeightScaleBytes(const Signature& s) {
  int64_t bytes = 0;
  for (const GroupShape& shape : s.groups) {
    bytes += ScalePlaneBytes(s.types.b_scale_layout, shape.n, shape.k);
  }
  return bytes;
}

}  // namespace tetrad
