// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/signature.h"

#include <functional>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/hash/hash.h"

namespace tetrad {
namespace {

using ::testing::HasSubstr;

Signature Exact(std::vector<GroupShape> groups) {
  Signature s;
  s.groups = std::move(groups);
  s.device = "cpu-test";
  return s;
}

Signature Capacity(MSource source, int64_t rows, int groups) {
  Signature s = Exact(std::vector<GroupShape>(groups, GroupShape{0, 48, 64}));
  s.form = GroupForm::kStacked;
  s.m_source = source;
  s.capacity_rows = rows;
  return s;
}

TEST(SignatureTest, EveryIllegalFieldIsNamedWithValueAndLimit) {
  const struct {
    const char* text;
    std::function<void(Signature&)> change;
  } cases[] = {
      {"groups=0 must be at least 1", [](Signature& s) { s.groups.clear(); }},
      {"group 1: n=0: wanted at least 1", [](Signature& s) { s.groups[1].n = 0; }},
      {"group 1: n=-5: wanted", [](Signature& s) { s.groups[1].n = -5; }},
      {"group 0: k=100: wanted a positive multiple of 32",
       [](Signature& s) { s.groups[0].k = 100; }},
      {"group 0: k=0: wanted", [](Signature& s) { s.groups[0].k = 0; }},
      {"group 0: k=-32: wanted", [](Signature& s) { s.groups[0].k = -32; }},
      {"group 1: m=-1: wanted at least 0", [](Signature& s) { s.groups[1].m = -1; }},
      {"group 0: output_stride=47 must be at least 48", [](Signature& s) { s.c_stride = 47; }},
      {"group 1: output_stride=48 must be at least 64",
       [](Signature& s) { s.c_stride = 48, s.groups[1].n = 64; }},
      {"output_stride=-1 must not be negative", [](Signature& s) { s.c_stride = -1; }},
      {"group 1: output_stride=6 must be at least 7",
       [](Signature& s) { s.c_stride = 6, s.types.c_layout = OutputLayout::kColumnMajor; }},
      {"group 0: output_stride=10 must be at least 12",
       [](Signature& s) {
         s.c_stride = 10, s.types.c_layout = OutputLayout::kColumnMajor;
         s.form = GroupForm::kStacked;
       }},
      {"group 1: n=64 k=64 must equal n=48 k=64 of group 0 in the stacked form",
       [](Signature& s) { s.form = GroupForm::kStacked, s.groups[1].n = 64; }},
      {"capacity: rows=9 must be 0 with exact m", [](Signature& s) { s.capacity_rows = 9; }},
      {"activation_type=7 is not one of",
       [](Signature& s) { s.types.a_type = static_cast<ActivationType>(7); }},
      {"output_type=3", [](Signature& s) { s.types.c_type = static_cast<OutputType>(3); }},
      {"epilogue=1", [](Signature& s) { s.types.epilogue = static_cast<Epilogue>(1); }},
      {"m_source=3", [](Signature& s) { s.m_source = static_cast<MSource>(3); }},
      {"group_form=2", [](Signature& s) { s.form = static_cast<GroupForm>(2); }},
      {"device-side M needs the stacked form",
       [](Signature& s) { s = Capacity(MSource::kCounts, 4, 2), s.form = GroupForm::kSeparate; }},
      {"capacity: rows=0 must be at least 1",
       [](Signature& s) { s = Capacity(MSource::kOffsets, 0, 2); }},
      {"capacity: rows=2147483648 exceeds the limit 2147483647",
       [](Signature& s) { s = Capacity(MSource::kOffsets, int64_t{1} << 31, 2); }},
      {"capacity: rows=2000000000 reserve more than",
       [](Signature& s) { s = Capacity(MSource::kCounts, 2000000000, 2); }},
      {"group 0: m=3: wanted 0: it is read from device memory",
       [](Signature& s) { s = Capacity(MSource::kCounts, 8, 2), s.groups[0].m = 3; }},
      {"weights: needs",
       [](Signature& s) { s.groups[0].n = 2147483647, s.groups[0].k = 2147483616; }},
      {"output: needs", [](Signature& s) { s.c_stride = int64_t{1} << 60; }},
      {"activations: needs",
       [](Signature& s) { s.groups[0].m = 2147483647, s.groups[0].k = 1 << 20; }},
  };
  for (const auto& [text, change] : cases) {
    Signature s = Exact({{5, 48, 64}, {7, 48, 64}});
    change(s);
    const auto canonical = Canonicalize(s);
    ASSERT_FALSE(canonical.ok()) << text;
    EXPECT_EQ(canonical.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(canonical.status().message()), HasSubstr(text));
  }
}

TEST(SignatureTest, LimitOnGroups) {
  EXPECT_TRUE(Canonicalize(Exact({{1, 8, 32}, {1, 8, 32}}), {.max_groups = 2}).ok());
  const auto refused = Canonicalize(Exact({{1, 8, 32}, {1, 8, 32}}), {.max_groups = 1});
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("groups=2 exceeds the limit 1"));
}

TEST(SignatureTest, EmptyGroupsAreLegal) {
  EXPECT_TRUE(Canonicalize(Exact({{0, 8, 32}})).ok());
  EXPECT_TRUE(Canonicalize(Exact({{0, 8, 32}, {3, 8, 32}, {0, 8, 32}})).ok());
}

TEST(SignatureTest, SpellingsOfOneSignatureAreEqual) {
  const Signature dense = *Canonicalize(Exact({{5, 48, 64}, {7, 48, 64}}));
  Signature spelled = Exact({{5, 48, 64}, {7, 48, 64}});
  spelled.c_stride = 48;
  EXPECT_EQ(*Canonicalize(spelled), dense);
  spelled.c_stride = 49;
  EXPECT_FALSE(*Canonicalize(spelled) == dense);

  Signature fp16 = Exact({{5, 48, 64}});
  fp16.types.a_type = ActivationType::kFp16;
  Signature blocked = fp16;
  blocked.types.a_scale_layout = ScaleLayout::kBlocked;  // means nothing without scales
  EXPECT_EQ(*Canonicalize(fp16), *Canonicalize(blocked));
}

TEST(SignatureTest, EveryFieldIsPartOfTheKey) {
  std::vector<Signature> all = {Exact({{5, 48, 64}, {7, 48, 64}})};
  const auto add = [&](const std::function<void(Signature&)>& change) {
    all.push_back(all[0]);
    change(all.back());
  };
  add([](Signature& s) { s.types.a_type = ActivationType::kBf16; });
  add([](Signature& s) { s.types.c_type = OutputType::kFp32; });
  add([](Signature& s) { s.types.a_scale_layout = ScaleLayout::kBlocked; });
  add([](Signature& s) { s.types.b_scale_layout = ScaleLayout::kBlocked; });
  add([](Signature& s) { s.types.c_layout = OutputLayout::kColumnMajor; });
  add([](Signature& s) { s.form = GroupForm::kStacked; });
  add([](Signature& s) { s.row_scale = true; });
  add([](Signature& s) { s.c_stride = 50; });
  add([](Signature& s) { s.groups[1].m = 6; });
  add([](Signature& s) { std::swap(s.groups[0], s.groups[1]); });
  add([](Signature& s) { s.device = "cpu-other"; });
  add([](Signature& s) { s = Capacity(MSource::kCounts, 8, 2); });
  add([](Signature& s) { s = Capacity(MSource::kOffsets, 8, 2); });
  add([](Signature& s) { s = Capacity(MSource::kOffsets, 9, 2); });
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(absl::HashOf(all[i]), absl::HashOf(Signature(all[i])));
    for (size_t j = 0; j < i; ++j) {
      EXPECT_FALSE(all[i] == all[j]) << i << " and " << j;
      EXPECT_NE(absl::HashOf(all[i]), absl::HashOf(all[j])) << i << " and " << j;
    }
  }
}

TEST(LayOutTest, WireIsTheGroupsConcatenated) {
  Signature s = *Canonicalize(Exact({{3, 5, 32}, {0, 9, 64}, {130, 7, 96}}));
  s.types.a_scale_layout = ScaleLayout::kBlocked;
  s.types.c_type = OutputType::kFp32;
  const OperandLayout wire = LayOut(s, 1);
  EXPECT_EQ(wire.rows, 133);
  EXPECT_EQ(wire.a_bytes, 3 * 16 + 130 * 48);
  EXPECT_EQ(wire.a_scale_bytes, 512 + 2 * 2 * 512);
  EXPECT_EQ(wire.c_bytes, (3 * 5 + 130 * 7) * 4);
  EXPECT_EQ(wire.groups[2], (GroupOffsets{48, 512, 60, 3, 7}));
  EXPECT_FALSE(wire.c_has_gaps);

  const OperandLayout staged = LayOut(s, 128);
  EXPECT_EQ(staged.groups[2], (GroupOffsets{128, 512, 128, 3, 7}));
  EXPECT_EQ(staged.c_bytes, 128 + 130 * 7 * 4);
}

TEST(LayOutTest, StacksShareOneMatrix) {
  Signature s = Exact({{3, 6, 32}, {0, 6, 32}, {2, 6, 32}});
  s.form = GroupForm::kStacked;
  s.c_stride = 9;
  OperandLayout layout = LayOut(*Canonicalize(s), 128);
  EXPECT_EQ(layout.a_bytes, 5 * 16);
  EXPECT_EQ(layout.c_bytes, 5 * 9 * 2);
  EXPECT_EQ(layout.groups[2], (GroupOffsets{48, 6, 3 * 9 * 2, 3, 9}));
  EXPECT_TRUE(layout.c_has_gaps);

  s.types.c_layout = OutputLayout::kColumnMajor;
  layout = LayOut(*Canonicalize(s), 128);
  EXPECT_EQ(layout.c_bytes, 6 * 9 * 2);
  EXPECT_EQ(layout.groups[2], (GroupOffsets{48, 6, 3 * 2, 3, 9}));
}

// The blocked scale planes of any legal offsets must fit what is reserved.
TEST(LayOutTest, ReservedScaleRowBlocksHoldAnySplitOfTheRows) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 2000; ++round) {
    const int groups = 1 + static_cast<int>(random() % 9);
    const int64_t rows = 1 + static_cast<int64_t>(random() % 700);
    Signature s = Capacity(MSource::kOffsets, rows, groups);
    s.types.a_scale_layout = ScaleLayout::kBlocked;
    const int64_t reserved = LayOut(*Canonicalize(s), 1).a_scale_bytes / kScaleTileBytes;
    int64_t left = rows, row_blocks = 0;
    for (int g = 0; g < groups; ++g) {
      // Many groups one row past a multiple of 128: the worst case.
      const int64_t want = random() % 2 == 0 ? 1 + 128 * static_cast<int64_t>(random() % 3)
                                             : static_cast<int64_t>(random() % 300);
      const int64_t m = std::min(left, want);
      left -= m;
      row_blocks += CeilDiv(m, 128);
    }
    ASSERT_LE(row_blocks, reserved) << "rows " << rows << " groups " << groups;
  }
}

TEST(LayOutTest, DeviceMReservesTheCapacity) {
  const OperandLayout counts = LayOut(*Canonicalize(Capacity(MSource::kCounts, 130, 3)), 128);
  EXPECT_EQ(counts.rows, 390);
  EXPECT_EQ(counts.m_values, 3);
  EXPECT_EQ(counts.a_bytes, 390 * 32);
  EXPECT_EQ(counts.a_scale_bytes, 390 * 4);
  EXPECT_EQ(counts.c_bytes, 390 * 48 * 2);
  EXPECT_TRUE(counts.c_has_gaps);
  const OperandLayout offsets = LayOut(*Canonicalize(Capacity(MSource::kOffsets, 130, 3)), 128);
  EXPECT_EQ(offsets.rows, 130);
  EXPECT_EQ(offsets.m_values, 4);
}

}  // namespace
}  // namespace tetrad
