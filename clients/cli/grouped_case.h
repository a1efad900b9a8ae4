// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// GroupedCase: one grouped GEMM to verify, as shapes and layouts without data.
// It states the same things as a v1::Signature with its weights, plus what is
// only known at launch (live rows), in terms of kernels/problem.h. Plain
// values; the functions are pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tetrad/v1/types.pb.h"
#include "tetrad/v1/weights.pb.h"

#include "kernels/problem.h"
#include "kernels/shapes.h"

namespace tetrad::cli {

struct CaseGroup {
  int32_t m = 0;  // live rows
  int32_t n = 0;
  int32_t k = 0;
  bool operator==(const CaseGroup&) const = default;
};

struct GroupedCase {
  std::string name;
  ProblemTypes types;
  GroupForm form = GroupForm::kSeparate;
  MSource m_source = MSource::kHost;
  int64_t capacity_rows = 0;  // device-side M, see MSource
  int64_t c_stride = 0;       // elements; 0: dense
  bool row_scale = false;
  bool alpha_a = false;  // the request brings a factor per group
  bool alpha_b = false;  // the weights bring one
  std::vector<CaseGroup> groups;
  bool operator==(const GroupedCase&) const = default;

  int64_t live_rows() const;
  double flops() const;  // 2 * sum of m*n*k
  // Rows of the stack on the wire: the live rows, or the rows reserved.
  int64_t rows() const;
};

// Where the operands of one group lie in an inline request and its reply,
// derived from the data contract alone (docs/design.md section 5), so that a
// daemon that lays them out differently is found out.
struct WireGroup {
  int64_t a = 0;         // bytes
  int64_t a_scales = 0;  // bytes
  int64_t c = 0;         // bytes of element (0, 0)
  int64_t c_stride = 0;  // elements
  int64_t row = 0;       // first row in row_scale
};

struct WireLayout {
  std::vector<WireGroup> groups;
  int64_t a_bytes = 0;
  int64_t a_scale_bytes = 0;  // with offsets and blocked scales: what the live rows need at least
  int64_t c_bytes = 0;
};

WireLayout LayOutOnWire(const GroupedCase& c);

v1::Signature ToSignature(const GroupedCase& c, const std::string& weights);
// Header of an upload of the weights, sealed at its end; alphas are data and
// left to the caller.
v1::UploadHeader ToUploadHeader(const GroupedCase& c, const std::string& name);
// offsets[groups + 1] or counts[groups] of the live rows; empty with host M.
std::vector<int32_t> MValues(const GroupedCase& c);

// A shape of the contest as its rules have it: NVFP4 on both sides, blocked
// scales, FP16 out, groups apart.
GroupedCase ContestCase(const NamedShape& shape);
// The named shape, or nothing.
std::optional<NamedShape> FindShape(std::string_view name);
// What a signature asks of these weights; rows are 0 with device-side M, and
// the layout of the weights' scales is left at its default: it is not on the wire
// of a request. INVALID_ARGUMENT: another number of groups.
absl::StatusOr<GroupedCase> CaseOf(const v1::Signature& signature, const v1::WeightsInfo& weights);

// One line for people: types, form, layout, sizes.
std::string Describe(const GroupedCase& c);

}  // namespace tetrad::cli
