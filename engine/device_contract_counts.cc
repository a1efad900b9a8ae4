// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The contract of device-side M: live counts decide, lying ones do no harm.
#include <array>

#include "absl/strings/str_cat.h"

#include "engine/device_contract.h"
#include "kernels/cpu/grouped_gemm.h"

namespace tetrad {
namespace {

constexpr int32_t kRows = 9;  // reserved per group
const std::vector<GroupShape> kShapes(3, {kRows, 72, 96});

DeviceSampleOptions Options(MSource source, ScaleLayout layout = ScaleLayout::kLinear) {
  DeviceSampleOptions options;
  options.sample.form = GroupForm::kStacked;
  options.sample.kind = DataKind::kContest;  // exact wherever a group begins
  options.sample.row_scales = true;
  options.sample.types.a_scale_layout = layout;
  options.m_source = source;
  return options;
}

TEST_P(DeviceContract, LiveCountsDecideWhatIsComputed) {
  for (const ScaleLayout layout : {ScaleLayout::kLinear, ScaleLayout::kBlocked}) {
    DeviceSample sample(device(), kShapes, Options(MSource::kCounts, layout));
    const BindingId binding = Bind(sample);
    for (const std::array<int32_t, 3>& counts :
         {std::array<int32_t, 3>{9, 9, 9}, {0, 0, 0}, {1, 0, 9}, {0, 5, 0}, {8, 9, 1}}) {
      SCOPED_TRACE(absl::StrCat(counts[0], ",", counts[1], ",", counts[2]));
      sample.SetMValues(counts);
      sample.ClearOutput();
      const Completion completion = RunOnce(binding);
      EXPECT_EQ(completion.code, Code::kOk);
      EXPECT_EQ(completion.error_word, 0u);
      std::vector<GroupProblem> live(sample.groups().begin(), sample.groups().end());
      for (size_t g = 0; g < live.size(); ++g) live[g].m = counts[g];
      EXPECT_TRUE(sample.Correct(live));
    }
  }
}

TEST_P(DeviceContract, LiveOffsetsDecideWhereGroupsBegin) {
  DeviceSample sample(device(), kShapes, Options(MSource::kOffsets));
  const BindingId binding = Bind(sample);
  for (const std::array<int32_t, 3>& m :
       {std::array<int32_t, 3>{9, 9, 9}, {0, 0, 0}, {27, 0, 0}, {0, 0, 27}, {3, 0, 11}}) {
    SCOPED_TRACE(absl::StrCat(m[0], ",", m[1], ",", m[2]));
    const int32_t offsets[] = {0, m[0], m[0] + m[1], m[0] + m[1] + m[2]};
    sample.SetMValues(offsets);
    sample.ClearOutput();
    EXPECT_EQ(RunOnce(binding).error_word, 0u);
    std::vector<GroupProblem> live(m.size());
    cpu::StackedGroups(sample.stack(), Options(MSource::kOffsets).sample.types, m, live);
    EXPECT_TRUE(sample.Correct(live));
  }
}

TEST_P(DeviceContract, CountsThatLieAreReportedAndWriteNothingOutside) {
  constexpr uint32_t kRange = kErrorCountOutOfRange, kFall = kErrorOffsetsNotMonotone;
  const struct {
    MSource source;
    std::vector<int32_t> values;
    uint32_t errors;  // at least one of these, and no others
  } cases[] = {{MSource::kCounts, {kRows + 1, 0, 0}, kRange},
               {MSource::kCounts, {0, 0, kRows + 1}, kRange},
               {MSource::kCounts, {-1, kRows, kRows}, kRange},
               {MSource::kCounts, {INT32_MAX, INT32_MAX, INT32_MAX}, kRange},
               {MSource::kCounts, {INT32_MIN, INT32_MAX, INT32_MIN}, kRange},
               {MSource::kOffsets, {0, 9, 18, 28}, kRange},
               {MSource::kOffsets, {0, INT32_MAX, INT32_MAX, INT32_MAX}, kRange},
               {MSource::kOffsets, {0, 18, 9, 27}, kFall},
               {MSource::kOffsets, {1, 9, 18, 27}, kFall},
               {MSource::kOffsets, {0, -1, 18, 27}, kRange | kFall},
               {MSource::kOffsets, {INT32_MIN, INT32_MAX, INT32_MIN, 1}, kRange | kFall}};
  for (const auto& [source, values, errors] : cases) {
    SCOPED_TRACE(::testing::PrintToString(values));
    DeviceSample sample(device(), kShapes, Options(source));
    const BindingId binding = Bind(sample);
    sample.SetMValues(values);
    const Completion completion = RunOnce(binding);
    EXPECT_EQ(completion.code, Code::kOk) << "the launch itself did not fail";
    EXPECT_NE(completion.error_word & errors, 0u);
    EXPECT_EQ(completion.error_word & ~errors, 0u);
    EXPECT_TRUE(sample.NothingOutsideTheOutput());

    // The next launch knows nothing of it.
    const bool offsets = source == MSource::kOffsets;
    sample.SetMValues(offsets ? std::vector<int32_t>{0, kRows, 2 * kRows, 3 * kRows}
                              : std::vector<int32_t>{kRows, kRows, kRows});
    sample.ClearOutput();
    EXPECT_EQ(RunOnce(binding).error_word, 0u);
    EXPECT_TRUE(sample.Correct());
    ASSERT_TRUE(device().Unbind(binding).ok());
    ASSERT_TRUE(sample.FreeAll());
  }
}

}  // namespace
}  // namespace tetrad
