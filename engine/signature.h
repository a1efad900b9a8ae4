// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Signature: all that decides a plan.
//
// Spellings of one signature compare equal once canonical: Canonicalize() validates every field
// against the data contract (docs/design.md section 5) and removes the freedom of expression, e.g.
// a stride that equals the dense one becomes 0. Equality is over the full key; the hash only
// selects a bucket. A plain value; no thread safety of its own.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "kernels/problem.h"

namespace tetrad {

// N and K of one group.
struct GroupDims {
  int32_t n = 0;
  int32_t k = 0;
  bool operator==(const GroupDims&) const = default;
};

struct Signature {
  ProblemTypes types;
  GroupForm form = GroupForm::kSeparate;
  MSource m_source = MSource::kHost;
  bool row_scale = false;
  int64_t c_stride = 0;       // elements; 0: dense
  int64_t capacity_rows = 0;  // device-side M, see MSource
  std::vector<GroupShape> groups;
  std::string device;  // UUID

  bool operator==(const Signature&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const Signature& s) {
    const ProblemTypes& t = s.types;
    return H::combine(std::move(h), t.a_type, t.c_type, t.a_scale_layout, t.b_scale_layout,
                      t.c_layout, t.epilogue, s.form, s.m_source, s.row_scale, s.c_stride,
                      s.capacity_rows, s.groups, s.device);
  }

  bool device_m() const { return m_source != MSource::kHost; }
  // Rows of the stack: sum of m, or the rows reserved with device-side M.
  int64_t rows() const;
};

struct SignatureLimits {
  int64_t max_groups = 1 << 17;
  int64_t max_operand_bytes = int64_t{1} << 40;  // of any one operand
};

// The canonical form, or INVALID_ARGUMENT naming group, field, value and limit.
absl::StatusOr<Signature> Canonicalize(Signature signature, const SignatureLimits& limits = {});

// Where each operand of each group lies, in bytes from the operand's base.
struct GroupOffsets {
  int64_t a = 0;
  int64_t a_scales = 0;
  int64_t c = 0;
  int64_t row = 0;       // first row of the group in the stack; row_scale index
  int64_t c_stride = 0;  // elements, never 0
  bool operator==(const GroupOffsets&) const = default;
};

// Layout of the operands a request brings and takes. With device-side M the
// offsets of the groups follow from the live counts and `groups` is empty.
struct OperandLayout {
  std::vector<GroupOffsets> groups;
  int64_t a_bytes = 0;
  int64_t a_scale_bytes = 0;
  int64_t c_bytes = 0;
  int64_t rows = 0;
  int64_t m_values = 0;     // int32 values of offsets or counts; 0 with host M
  int64_t c_stride = 0;     // device-side M: elements
  bool c_has_gaps = false;  // some byte of C is not an element of a group, or may not be live
};

// `signature` must be canonical. In the separate form every group starts at a
// multiple of `alignment` (1: concatenated, as on the wire); stacks never have
// gaps between groups.
OperandLayout LayOut(const Signature& signature, int64_t alignment);

// Bytes of the B operands, groups concatenated. Packed weights have no scales of their own.
int64_t WeightCodeBytes(const Signature& signature);
int64_t WeightScaleBytes(const Signature& signature);
int64_t PackedWeightBytes(std::span<const GroupDims> groups);

}  // namespace tetrad
