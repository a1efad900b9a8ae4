// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/grouped_case.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"

namespace tetrad::cli {
namespace {

constexpr const char* kActivationNames[] = {"nvfp4", "fp16", "bf16"};
constexpr const char* kOutputNames[] = {"fp16", "bf16", "fp32"};

template <typename Enum>
constexpr size_t Index(Enum value) {
  return static_cast<size_t>(value);
}

// The wire enums number the kernels' values from 1; 0 means unspecified.
template <typename Wire, typename Enum>
constexpr Wire ToWire(Enum value) {
  return static_cast<Wire>(static_cast<int>(value) + 1);
}
static_assert(ToWire<v1::ActivationType>(ActivationType::kBf16) == v1::ACTIVATION_TYPE_BF16);
static_assert(ToWire<v1::OutputType>(OutputType::kFp32) == v1::OUTPUT_TYPE_FP32);
static_assert(ToWire<v1::ScaleLayout>(ScaleLayout::kBlocked) == v1::SCALE_LAYOUT_BLOCKED);
static_assert(ToWire<v1::OutputLayout>(OutputLayout::kColumnMajor) ==
              v1::OUTPUT_LAYOUT_COLUMN_MAJOR);
static_assert(ToWire<v1::GroupForm>(GroupForm::kStacked) == v1::GROUP_FORM_STACKED);

template <typename Enum, typename Wire>
constexpr Enum FromWire(Wire value) {  // unspecified is the first value, too
  return static_cast<Enum>(std::max(static_cast<int>(value) - 1, 0));
}

bool OneShape(const GroupedCase& c) {
  return std::all_of(c.groups.begin(), c.groups.end(), [&c](const CaseGroup& g) {
    return g.n == c.groups[0].n && g.k == c.groups[0].k;
  });
}

// First row of a group in the stack, and the one its scale plane starts at.
int64_t StackRow(const GroupedCase& c, size_t group, int64_t live_before) {
  return c.m_source == MSource::kCounts ? static_cast<int64_t>(group) * c.capacity_rows
                                        : live_before;
}

}  // namespace

int64_t GroupedCase::live_rows() const {
  int64_t rows = 0;
  for (const CaseGroup& g : groups) rows += g.m;
  return rows;
}

double GroupedCase::flops() const {
  double flops = 0;
  for (const CaseGroup& g : groups) flops += 2.0 * g.m * g.n * g.k;
  return flops;
}

int64_t GroupedCase::rows() const {
  switch (m_source) {
    case MSource::kHost:
      return live_rows();
    case MSource::kOffsets:
      return capacity_rows;
    case MSource::kCounts:
      return capacity_rows * static_cast<int64_t>(groups.size());
  }
  return 0;
}

WireLayout LayOutOnWire(const GroupedCase& c) {
  WireLayout layout;
  const bool nvfp4 = c.types.a_type == ActivationType::kNvfp4;
  const bool column_major = c.types.c_layout == OutputLayout::kColumnMajor;
  const bool stacked = c.form == GroupForm::kStacked;
  const int64_t element = OutputElementBytes(c.types.c_type);
  int64_t live_before = 0, c_elements = 0;
  for (size_t i = 0; i < c.groups.size(); ++i) {
    const CaseGroup& g = c.groups[i];
    WireGroup wire;
    wire.row = StackRow(c, i, live_before);
    // Groups of one stack share n and k, so a stack row has one address
    // whichever group it belongs to; separate groups follow each other.
    wire.a = stacked ? ActivationBytes(c.types.a_type, wire.row, g.k) : layout.a_bytes;
    if (nvfp4) {
      // Blocked planes start at whole row-blocks, so they never share a tile.
      const bool reserved = c.m_source == MSource::kCounts;
      const int64_t plane =
          ScalePlaneBytes(c.types.a_scale_layout, reserved ? c.capacity_rows : g.m, g.k);
      wire.a_scales = layout.a_scale_bytes;
      layout.a_scale_bytes += plane;
    }
    if (column_major) {
      // Nothing has no output, whatever its stride.
      const int64_t rows = stacked ? c.rows() : g.m;
      wire.c_stride = c.c_stride != 0 ? c.c_stride : rows;
      const int64_t elements = rows > 0 ? g.n * wire.c_stride : 0;
      wire.c = (stacked ? wire.row : c_elements) * element;
      c_elements = stacked ? elements : c_elements + elements;
    } else {
      wire.c_stride = c.c_stride != 0 ? c.c_stride : g.n;
      wire.c = (stacked ? wire.row * wire.c_stride : c_elements) * element;
      c_elements = stacked ? c.rows() * wire.c_stride : c_elements + g.m * wire.c_stride;
    }
    layout.a_bytes = stacked ? ActivationBytes(c.types.a_type, c.rows(), g.k)
                             : layout.a_bytes + ActivationBytes(c.types.a_type, g.m, g.k);
    live_before += g.m;
    layout.groups.push_back(wire);
  }
  if (nvfp4 && c.m_source == MSource::kOffsets && c.types.a_scale_layout == ScaleLayout::kLinear) {
    layout.a_scale_bytes = ScalePlaneBytes(ScaleLayout::kLinear, c.capacity_rows, c.groups[0].k);
  }
  layout.c_bytes = c_elements * element;
  return layout;
}

v1::Signature ToSignature(const GroupedCase& c, const std::string& weights) {
  v1::Signature signature;
  signature.set_weights(weights);
  signature.set_activation_type(ToWire<v1::ActivationType>(c.types.a_type));
  signature.set_output_type(ToWire<v1::OutputType>(c.types.c_type));
  if (c.types.a_type == ActivationType::kNvfp4) {
    signature.set_activation_scale_layout(ToWire<v1::ScaleLayout>(c.types.a_scale_layout));
  }
  signature.set_output_layout(ToWire<v1::OutputLayout>(c.types.c_layout));
  signature.set_output_stride(c.c_stride);
  signature.set_group_form(ToWire<v1::GroupForm>(c.form));
  signature.set_row_scale(c.row_scale);
  if (c.m_source == MSource::kHost) {
    for (const CaseGroup& g : c.groups) signature.mutable_exact()->add_m(g.m);
    if (c.groups.empty()) signature.mutable_exact();
  } else {
    v1::Capacity& capacity = *signature.mutable_capacity();
    capacity.set_m_source(c.m_source == MSource::kOffsets ? v1::M_SOURCE_OFFSETS
                                                          : v1::M_SOURCE_COUNTS);
    capacity.set_rows(c.capacity_rows);
  }
  return signature;
}

v1::UploadHeader ToUploadHeader(const GroupedCase& c, const std::string& name) {
  v1::UploadHeader header;
  header.set_name(name);
  header.set_scale_layout(ToWire<v1::ScaleLayout>(c.types.b_scale_layout));
  header.set_seal(true);
  const bool compact = c.groups.size() > 1 && OneShape(c);
  if (compact) header.set_group_count(static_cast<int32_t>(c.groups.size()));
  for (size_t i = 0; i < (compact ? 1 : c.groups.size()); ++i) {
    v1::GroupDims& dims = *header.add_groups();
    dims.set_n(c.groups[i].n);
    dims.set_k(c.groups[i].k);
  }
  return header;
}

std::vector<int32_t> MValues(const GroupedCase& c) {
  std::vector<int32_t> values;
  if (c.m_source == MSource::kHost) return values;
  if (c.m_source == MSource::kOffsets) values.push_back(0);
  for (const CaseGroup& g : c.groups) {
    values.push_back(c.m_source == MSource::kOffsets ? values.back() + g.m : g.m);
  }
  return values;
}

GroupedCase ContestCase(const NamedShape& shape) {
  GroupedCase c;
  c.name = shape.name;
  c.types.a_scale_layout = ScaleLayout::kBlocked;
  c.types.b_scale_layout = ScaleLayout::kBlocked;
  for (const GroupShape& g : shape.groups) c.groups.push_back({g.m, g.n, g.k});
  return c;
}

std::optional<NamedShape> FindShape(std::string_view name) {
  const std::span<const NamedShape> sets[] = {kBenchmarkShapes, kTestShapes, kDecodeShapes,
                                              kPrefillShapes};
  for (const auto& set : sets) {
    const auto found = std::ranges::find(set, name, &NamedShape::name);
    if (found != set.end()) return *found;
  }
  return std::nullopt;
}

absl::StatusOr<GroupedCase> CaseOf(const v1::Signature& signature, const v1::WeightsInfo& weights) {
  GroupedCase c;
  c.name = weights.name();
  c.types.a_type = FromWire<ActivationType>(signature.activation_type());
  c.types.c_type = FromWire<OutputType>(signature.output_type());
  c.types.a_scale_layout = FromWire<ScaleLayout>(signature.activation_scale_layout());
  c.types.c_layout = FromWire<OutputLayout>(signature.output_layout());
  c.form = FromWire<GroupForm>(signature.group_form());
  c.c_stride = signature.output_stride();
  c.row_scale = signature.row_scale();
  if (signature.has_capacity()) {
    c.m_source = static_cast<MSource>(signature.capacity().m_source());
    c.capacity_rows = signature.capacity().rows();
  }
  if (signature.has_exact() && signature.exact().m_size() != weights.group_count()) {
    return absl::InvalidArgumentError(absl::StrCat("--m has ", signature.exact().m_size(),
                                                   " groups, the weights have ",
                                                   weights.group_count()));
  }
  for (int g = 0; g < weights.group_count(); ++g) {
    const v1::GroupDims& dims = weights.groups(weights.groups_size() == 1 ? 0 : g);
    c.groups.push_back({signature.has_exact() ? signature.exact().m(g) : 0, dims.n(), dims.k()});
  }
  return c;
}

std::string Describe(const GroupedCase& c) {
  const bool blocked_a = c.types.a_scale_layout == ScaleLayout::kBlocked;
  const bool blocked_b = c.types.b_scale_layout == ScaleLayout::kBlocked;
  std::string text = absl::StrCat("G=", c.groups.size(), " rows=", c.live_rows());
  if (!c.groups.empty()) {
    absl::StrAppend(&text, " n=", c.groups[0].n, " k=", c.groups[0].k, OneShape(c) ? "" : "..");
  }
  absl::StrAppend(&text, " ", kActivationNames[Index(c.types.a_type)],
                  c.types.a_type != ActivationType::kNvfp4 ? ""
                  : blocked_a                              ? "/blocked"
                                                           : "/linear",
                  " x ", blocked_b ? "blocked" : "linear", " -> ",
                  kOutputNames[Index(c.types.c_type)],
                  c.types.c_layout == OutputLayout::kColumnMajor ? "/column" : "/row");
  if (c.c_stride != 0) absl::StrAppend(&text, " stride=", c.c_stride);
  absl::StrAppend(&text, c.form == GroupForm::kStacked ? " stacked" : " separate");
  if (c.m_source != MSource::kHost) {
    absl::StrAppend(&text,
                    c.m_source == MSource::kOffsets ? " offsets:" : " counts:", c.capacity_rows);
  }
  absl::StrAppend(&text, c.row_scale ? " row-scale" : "", c.alpha_a ? " alpha-a" : "",
                  c.alpha_b ? " alpha-b" : "");
  return text;
}

}  // namespace tetrad::cli
