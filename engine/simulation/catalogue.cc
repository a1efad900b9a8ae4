// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/simulation/catalogue.h"

#include "engine/simulation/random.h"
#include "engine/support/status_macros.h"

namespace tetrad::simulation {
namespace {

constexpr int64_t kStagingSpacing = 256;
constexpr int kContents = 3;

Family MakeFamily(std::vector<GroupDims> groups, ScaleLayout layout, uint64_t seed) {
  Family family{std::move(groups), layout, {}};
  Random random(seed);
  for (int i = 0; i < kContents; ++i) {
    WeightsContent content;
    for (const GroupDims& dims : family.groups) {
      for (int64_t b = 0; b < CodeBytes(dims.n, dims.k); ++b) {
        content.codes.push_back(static_cast<std::byte>(random.Below(256)));
      }
      const size_t plane = content.scales.size();
      content.scales.resize(plane + static_cast<size_t>(ScalePlaneBytes(layout, dims.n, dims.k)));
      for (int64_t row = 0; row < dims.n; ++row) {
        for (int64_t block = 0; block < dims.k / kScaleBlock; ++block) {
          content.scales[plane + static_cast<size_t>(ScaleOffset(layout, row, block, dims.k))] =
              static_cast<std::byte>(random.Below(0x7F));
        }
      }
      if (i > 0) content.alpha.push_back(static_cast<float>(1 << i));
    }
    family.contents.push_back(std::move(content));
  }
  return family;
}

}  // namespace

Catalogue MakeCatalogue(const std::string& device) {
  Catalogue catalogue;
  catalogue.families = {
      MakeFamily({{8, 32}, {8, 32}}, ScaleLayout::kLinear, 1),
      MakeFamily({{8, 32}, {12, 64}, {8, 32}}, ScaleLayout::kLinear, 2),
      MakeFamily({{8, 32}}, ScaleLayout::kBlocked, 3),
  };
  const auto add = [&](size_t family, SignatureRequest request) {
    Shape shape{family, std::move(request), {}, {}, {}, 0};
    const SignatureRequest& r = shape.request;
    Signature s{.types = r.types,
                .form = r.form,
                .m_source = r.m_source,
                .row_scale = r.row_scale,
                .c_stride = r.c_stride,
                .capacity_rows = r.capacity_rows,
                .groups = {},
                .device = device};
    s.types.b_scale_layout = catalogue.families[family].scale_layout;
    for (size_t g = 0; g < catalogue.families[family].groups.size(); ++g) {
      const GroupDims& dims = catalogue.families[family].groups[g];
      s.groups.push_back({r.m.empty() ? 0 : r.m[g], dims.n, dims.k});
    }
    auto canonical = Canonicalize(std::move(s));
    TETRAD_CHECK(canonical.ok());
    shape.signature = *std::move(canonical);
    shape.wire = LayOut(shape.signature, 1);
    shape.layout = LayOut(shape.signature, kStagingAlignment);
    const OperandLayout& l = shape.layout;
    for (const int64_t bytes : {int64_t{4} * static_cast<int64_t>(shape.signature.groups.size()),
                                l.a_bytes, l.a_scale_bytes, l.c_bytes, l.m_values * 4,
                                shape.signature.row_scale ? l.rows * 4 : int64_t{0}}) {
      shape.inline_bytes += RoundUp(bytes, kStagingSpacing);
    }
    catalogue.shapes.push_back(std::move(shape));
  };
  const ProblemTypes plain;
  ProblemTypes fp32 = plain, fp16_a = plain, columns = plain, blocked = plain;
  fp32.c_type = OutputType::kFp32;
  fp16_a.a_type = ActivationType::kFp16;
  columns.c_layout = OutputLayout::kColumnMajor;
  blocked.a_scale_layout = ScaleLayout::kBlocked;
  add(0, {.types = plain, .m = {3, 2}});
  add(0, {.types = plain,
          .form = GroupForm::kStacked,
          .m = {4, 1},
          .c_stride = 12,
          .row_scale = true});
  add(0, {.types = fp32,
          .form = GroupForm::kStacked,
          .m_source = MSource::kCounts,
          .capacity_rows = 3});
  add(0, {.types = fp16_a,
          .form = GroupForm::kStacked,
          .m_source = MSource::kOffsets,
          .capacity_rows = 6,
          .row_scale = true});
  add(1, {.types = columns, .m = {2, 0, 5}, .c_stride = 8});
  add(1, {.types = blocked, .m = {1, 3, 1}});
  add(2, {.types = plain, .m = {6}});
  add(0, {.types = plain, .m = {0, 0}});
  add(0, {.types = fp16_a, .m = {40, 24}});
  return catalogue;
}

}  // namespace tetrad::simulation
