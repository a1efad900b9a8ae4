// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/grouped_case.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "clients/cli/case_data.h"

namespace tetrad::cli {
namespace {

using ::testing::ElementsAre;

// A layout as text, so that a table of cases stays readable.
std::vector<std::vector<int64_t>> Rows(const WireLayout& layout) {
  std::vector<std::vector<int64_t>> rows;
  for (const WireGroup& g : layout.groups) {
    rows.push_back({g.a, g.a_scales, g.c, g.c_stride, g.row});
  }
  rows.push_back({layout.a_bytes, layout.a_scale_bytes, layout.c_bytes});
  return rows;
}
using Numbers = std::vector<int64_t>;

TEST(GroupedCaseTest, SeparateGroupsFollowEachOther) {
  GroupedCase c;
  c.groups = {{3, 5, 32}, {0, 7, 64}, {2, 4, 96}};
  EXPECT_THAT(Rows(LayOutOnWire(c)),
              ElementsAre(Numbers{0, 0, 0, 5, 0}, Numbers{48, 6, 30, 7, 3},
                          Numbers{48, 6, 30, 4, 3}, Numbers{48 + 96, 6 + 12, 30 + 16}));
  c.c_stride = 9;
  c.types.c_type = OutputType::kFp32;
  EXPECT_THAT(Rows(LayOutOnWire(c)), ElementsAre(Numbers{0, 0, 0, 9, 0}, Numbers{48, 6, 108, 9, 3},
                                                 Numbers{48, 6, 108, 9, 3}, Numbers{144, 18, 180}));
  c.types.c_layout = OutputLayout::kColumnMajor;  // the empty group has no columns either
  EXPECT_THAT(Rows(LayOutOnWire(c)),
              ElementsAre(Numbers{0, 0, 0, 9, 0}, Numbers{48, 6, 180, 9, 3},
                          Numbers{48, 6, 180, 9, 3}, Numbers{144, 18, 180 + 144}));
}

TEST(GroupedCaseTest, BlockedScalesStartAtWholeRowBlocks) {
  GroupedCase c;
  c.types.a_scale_layout = ScaleLayout::kBlocked;
  c.form = GroupForm::kStacked;
  c.groups = {{129, 8, 96}, {0, 8, 96}, {1, 8, 96}};
  const int64_t block = 2 * 512;  // k=96 is two tiles wide
  EXPECT_THAT(Rows(LayOutOnWire(c)),
              ElementsAre(Numbers{0, 0, 0, 8, 0}, Numbers{129 * 48, 2 * block, 129 * 16, 8, 129},
                          Numbers{129 * 48, 2 * block, 129 * 16, 8, 129},
                          Numbers{130 * 48, 3 * block, 130 * 16}));
  c.m_source = MSource::kCounts;
  c.capacity_rows = 130;
  EXPECT_THAT(Rows(LayOutOnWire(c)),
              ElementsAre(Numbers{0, 0, 0, 8, 0}, Numbers{130 * 48, 2 * block, 130 * 16, 8, 130},
                          Numbers{260 * 48, 4 * block, 260 * 16, 8, 260},
                          Numbers{390 * 48, 6 * block, 390 * 16}));
  c.m_source = MSource::kOffsets;
  c.capacity_rows = 200;
  EXPECT_THAT(Rows(LayOutOnWire(c)),
              ElementsAre(Numbers{0, 0, 0, 8, 0}, Numbers{129 * 48, 2 * block, 129 * 16, 8, 129},
                          Numbers{129 * 48, 2 * block, 129 * 16, 8, 129},
                          Numbers{200 * 48, 3 * block, 200 * 16}));
}

TEST(GroupedCaseTest, StackedColumnsSpanTheWholeStack) {
  GroupedCase c;
  c.types.a_type = ActivationType::kFp16;
  c.types.c_layout = OutputLayout::kColumnMajor;
  c.form = GroupForm::kStacked;
  c.groups = {{3, 4, 32}, {2, 4, 32}};
  EXPECT_THAT(Rows(LayOutOnWire(c)),
              ElementsAre(Numbers{0, 0, 0, 5, 0}, Numbers{192, 0, 6, 5, 3}, Numbers{320, 0, 40}));
  c.groups = {{0, 4, 32}};
  c.c_stride = 9;
  EXPECT_THAT(Rows(LayOutOnWire(c)), ElementsAre(Numbers{0, 0, 0, 9, 0}, Numbers{0, 0, 0}));
}

TEST(GroupedCaseTest, SignatureHeaderAndValuesSayTheSame) {
  GroupedCase c;
  c.types.a_type = ActivationType::kBf16;
  c.types.c_type = OutputType::kFp32;
  c.types.b_scale_layout = ScaleLayout::kBlocked;
  c.types.c_layout = OutputLayout::kColumnMajor;
  c.form = GroupForm::kStacked;
  c.c_stride = 64;
  c.row_scale = true;
  c.groups = {{3, 4, 32}, {0, 4, 32}, {2, 4, 32}};
  v1::Signature s = ToSignature(c, "w@1");
  EXPECT_EQ(s.weights(), "w@1");
  EXPECT_EQ(s.activation_type(), v1::ACTIVATION_TYPE_BF16);
  EXPECT_EQ(s.activation_scale_layout(), v1::SCALE_LAYOUT_UNSPECIFIED);
  EXPECT_EQ(s.output_type(), v1::OUTPUT_TYPE_FP32);
  EXPECT_EQ(s.output_layout(), v1::OUTPUT_LAYOUT_COLUMN_MAJOR);
  EXPECT_EQ(s.group_form(), v1::GROUP_FORM_STACKED);
  EXPECT_EQ(s.output_stride(), 64);
  EXPECT_TRUE(s.row_scale());
  EXPECT_THAT(s.exact().m(), ElementsAre(3, 0, 2));
  EXPECT_THAT(MValues(c), ElementsAre());
  const v1::UploadHeader header = ToUploadHeader(c, "w");
  EXPECT_EQ(header.group_count(), 3);
  EXPECT_EQ(header.groups_size(), 1);
  EXPECT_EQ(header.scale_layout(), v1::SCALE_LAYOUT_BLOCKED);
  EXPECT_TRUE(header.seal());

  c.m_source = MSource::kOffsets;
  c.capacity_rows = 10;
  s = ToSignature(c, "w");
  EXPECT_EQ(s.capacity().m_source(), v1::M_SOURCE_OFFSETS);
  EXPECT_EQ(s.capacity().rows(), 10);
  EXPECT_THAT(MValues(c), ElementsAre(0, 3, 3, 5));
  c.m_source = MSource::kCounts;
  EXPECT_EQ(ToSignature(c, "w").capacity().m_source(), v1::M_SOURCE_COUNTS);
  EXPECT_THAT(MValues(c), ElementsAre(3, 0, 2));
  EXPECT_EQ(c.rows(), 30);

  c.groups[1].n = 5;
  EXPECT_EQ(ToUploadHeader(c, "w").group_count(), 0);
  EXPECT_EQ(ToUploadHeader(c, "w").groups_size(), 3);
}

TEST(GroupedCaseTest, DescriptionNamesWhatMatters) {
  GroupedCase c;
  c.groups = {{3, 4, 32}};
  EXPECT_EQ(Describe(c), "G=1 rows=3 n=4 k=32 nvfp4/linear x linear -> fp16/row separate");
  c.types.a_type = ActivationType::kFp16;
  c.form = GroupForm::kStacked;
  c.m_source = MSource::kCounts;
  c.capacity_rows = 7;
  c.row_scale = c.alpha_a = true;
  EXPECT_EQ(Describe(c),
            "G=1 rows=3 n=4 k=32 fp16 x linear -> fp16/row stacked counts:7 row-scale alpha-a");
}

TEST(CaseDataTest, TheSameSeedGivesTheSameBytesOnAnyNumberOfThreads) {
  GroupedCase c;
  c.types.a_scale_layout = ScaleLayout::kBlocked;
  c.row_scale = c.alpha_a = c.alpha_b = true;
  for (int m = 0; m < 9; ++m) c.groups.push_back({m, 3 + m, 64});
  CaseData one(c, DataKind::kExact, 5, 1), many(c, DataKind::kExact, 5, 4),
      other(c, DataKind::kExact, 6, 4);
  EXPECT_EQ(one.codes(), many.codes());
  EXPECT_EQ(one.scales(), many.scales());
  EXPECT_EQ(one.alpha_b(), many.alpha_b());
  EXPECT_EQ(one.request().SerializeAsString(), many.request().SerializeAsString());
  EXPECT_NE(one.codes(), other.codes());
  EXPECT_EQ(one.request().inline_operands().alpha_size(), 9);
  EXPECT_EQ(one.request().inline_operands().row_scale_size(), 36);
  EXPECT_EQ(one.alpha_b().size(), 9u);
}

TEST(CaseDataTest, GapsAreFoundExactlyWhereNothingLives) {
  GroupedCase c;
  c.form = GroupForm::kStacked;
  c.m_source = MSource::kCounts;
  c.capacity_rows = 2;
  c.c_stride = 4;
  c.groups = {{1, 3, 32}, {2, 3, 32}};
  const WireLayout layout = LayOutOnWire(c);
  ASSERT_EQ(layout.c_bytes, 4 * 4 * 2);
  // Rows 0, 2 and 3 live, three of four columns, two bytes an element.
  for (int64_t byte = 0; byte < layout.c_bytes; ++byte) {
    std::string output(static_cast<size_t>(layout.c_bytes), '\0');
    output[static_cast<size_t>(byte)] = 1;
    const bool live = byte / 8 != 1 && byte % 8 < 6;
    EXPECT_EQ(FindNonzeroGap(c, layout, output), live ? -1 : byte) << byte;
  }
}

}  // namespace
}  // namespace tetrad::cli
