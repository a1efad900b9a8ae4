// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The contract of launches: results, order, bounds.
#include <array>

#include "absl/strings/str_cat.h"

#include "engine/device_contract.h"

namespace tetrad {
namespace {

using ::testing::HasSubstr;

TEST_P(DeviceContract, ResultsOfEveryKindOfSignatureAreExact) {
  const std::vector<GroupShape> ragged = {{5, 48, 96}, {0, 24, 64}, {130, 33, 160}, {1, 1, 32}};
  const std::vector<GroupShape> alike = {{5, 48, 96}, {0, 48, 96}, {130, 48, 96}, {1, 48, 96}};
  int64_t launches = 0;
  for (const ActivationType a : {ActivationType::kNvfp4, ActivationType::kFp16}) {
    for (const OutputType c : {OutputType::kFp16, OutputType::kBf16, OutputType::kFp32}) {
      for (const GroupForm form : {GroupForm::kSeparate, GroupForm::kStacked}) {
        for (const bool plain : {true, false}) {
          DeviceSampleOptions options;
          SampleOptions& sample = options.sample;
          sample.types.a_type = a;
          sample.types.c_type = c;
          sample.form = form;
          sample.seed = static_cast<uint64_t>(++launches);
          if (!plain) {
            sample.row_scales = true;
            sample.types.b_scale_layout = ScaleLayout::kBlocked;
            if (a == ActivationType::kNvfp4) sample.types.a_scale_layout = ScaleLayout::kBlocked;
            if (form == GroupForm::kStacked) {
              sample.types.c_layout = OutputLayout::kColumnMajor;
              sample.c_padding = 3;
            }
          }
          SCOPED_TRACE(absl::StrCat("a ", static_cast<int>(a), ", c ", static_cast<int>(c),
                                    ", form ", static_cast<int>(form), plain ? ", plain" : ""));
          DeviceSample on_device(device(), form == GroupForm::kStacked ? alike : ragged, options);
          const BindingId binding = Bind(on_device);
          const Completion completion = RunOnce(binding);
          EXPECT_EQ(completion.code, Code::kOk);
          EXPECT_EQ(completion.error_word, 0u);
          EXPECT_GT(completion.device_ns, 0);
          EXPECT_TRUE(on_device.Correct());
          ASSERT_TRUE(device().Unbind(binding).ok());
          ASSERT_TRUE(on_device.FreeAll());
        }
      }
    }
  }
}

// What a binding names is read at every launch, not at Bind().
TEST_P(DeviceContract, OperandsAreReadAtEveryLaunch) {
  const std::vector<GroupShape> shapes = {{5, 48, 96}};
  DeviceSample sample(device(), shapes, {.sample = {.kind = DataKind::kContest}});
  DeviceSample other(device(), shapes, {.sample = {.kind = DataKind::kContest, .seed = 2}});
  const BindingId binding = Bind(sample);
  RunOnce(binding);
  EXPECT_TRUE(sample.Correct());
  std::vector<GroupProblem> expected(sample.groups().begin(), sample.groups().end());
  const BlockRef& a = sample.blocks().a;
  const std::span<const uint8_t> codes(other.groups()[0].a, static_cast<size_t>(a.bytes));
  ASSERT_TRUE(device().Write(a.allocation, a.offset, std::as_bytes(codes)).ok());
  ASSERT_TRUE(
      device()
          .Write(sample.blocks().a_scales.allocation, 0,
                 std::as_bytes(std::span(other.groups()[0].a_scales,
                                         static_cast<size_t>(sample.blocks().a_scales.bytes))))
          .ok());
  const float alpha = 0.5f;
  ASSERT_TRUE(device()
                  .Write(sample.blocks().alpha.allocation, 0, std::as_bytes(std::span(&alpha, 1)))
                  .ok());
  expected[0].a = other.groups()[0].a;
  expected[0].a_scales = other.groups()[0].a_scales;
  expected[0].alpha = alpha;
  RunOnce(binding);
  EXPECT_TRUE(sample.Correct(expected));
}

TEST_P(DeviceContract, AnEmptyLaunchCompletesAndWritesNothing) {
  for (const GroupForm form : {GroupForm::kSeparate, GroupForm::kStacked}) {
    DeviceSample sample(device(), {{0, 48, 96}, {0, 48, 96}}, {.sample = {.form = form}});
    const BindingId binding = Bind(sample);
    const Completion completion = RunOnce(binding);
    EXPECT_EQ(completion.code, Code::kOk);
    EXPECT_EQ(completion.error_word, 0u);
    EXPECT_TRUE(sample.Correct());
    ASSERT_TRUE(device().Unbind(binding).ok());
    EXPECT_TRUE(sample.FreeAll());
  }
}

TEST_P(DeviceContract, LanesThatDoNotExistAreRefused) {
  DeviceSample sample(device(), {{3, 32, 64}});
  const BindingId binding = Bind(sample);
  const uint32_t lanes = static_cast<uint32_t>(device().limits().lanes);
  for (const uint32_t lane : {lanes, lanes + 1, 0x80000000u, UINT32_MAX}) {
    const absl::Status refused = device().Launch(LaneId{lane}, binding, 1);
    EXPECT_EQ(refused.code(), Code::kInvalidArgument) << lane;
    EXPECT_THAT(Text(refused), HasSubstr(absl::StrCat("lane=", lane)));
  }
  for (uint32_t lane = 0; lane < lanes; ++lane) {
    ASSERT_TRUE(device().Launch(LaneId{lane}, binding, lane).ok());
    EXPECT_EQ(WaitFor(1)[0].ticket, lane);
  }
}

// Unbind() tells that the refused ones above left nothing under way.
TEST_P(DeviceContract, ARefusedLaunchLeavesNothingUnderWay) {
  DeviceSample sample(device(), {{3, 32, 64}});
  const BindingId binding = Bind(sample);
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(device().Launch(LaneId{UINT32_MAX}, binding, 1).ok());
  }
  Completion none;
  EXPECT_EQ(device().Poll({&none, 1}), 0u);
  EXPECT_TRUE(device().Unbind(binding).ok());
}

// A launch is under way until its completion was fetched: there is room for
// that many completions.
TEST_P(DeviceContract, MaxInFlightIsExactAndRecovers) {
  for (const int32_t limit : {1, 2, 8}) {
    Make({.max_in_flight = limit});
    DeviceSample sample(device(), {{3, 32, 64}});
    const BindingId binding = Bind(sample);
    uint64_t launched = 0, seen = 0;
    for (int round = 0; round < 50; ++round) {
      while (launched - seen < static_cast<uint64_t>(limit)) {
        const absl::Status status = device().Launch(LaneId{0}, binding, launched);
        ASSERT_TRUE(status.ok()) << status;
        ++launched;
      }
      const absl::Status refused = device().Launch(LaneId{0}, binding, 1 << 20);
      EXPECT_EQ(refused.code(), Code::kResourceExhausted);
      EXPECT_THAT(Text(refused), HasSubstr(absl::StrCat("max_in_flight: ", limit)));
      const size_t some = static_cast<size_t>(round % limit + 1);
      for (const Completion& completion : WaitFor(some)) EXPECT_EQ(completion.ticket, seen++);
    }
    for (const Completion& completion : WaitFor(launched - seen)) {
      EXPECT_EQ(completion.ticket, seen++);
    }
    EXPECT_TRUE(device().Unbind(binding).ok());
  }
}

TEST_P(DeviceContract, PollGivesNoMoreThanAskedForAndLosesNothing) {
  DeviceSample sample(device(), {{3, 32, 64}});
  const BindingId binding = Bind(sample);
  for (uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(device().Launch(LaneId{0}, binding, i).ok());
  EXPECT_EQ(device().Poll({}), 0u);
  Completion untouched{.ticket = 99};
  std::array<Completion, 3> out;
  uint64_t seen = 0;
  EXPECT_TRUE(Eventually([&] {
    out.fill(untouched);
    const size_t got = device().Poll(std::span(out).first(2));
    EXPECT_LE(got, 2u);
    for (size_t i = 0; i < got; ++i) EXPECT_EQ(out[i].ticket, seen++);
    for (size_t i = got; i < 3; ++i) EXPECT_EQ(out[i].ticket, 99u);
    return seen == 8;
  }));
  EXPECT_EQ(device().Poll(out), 0u);
}

// The later of two launches that write the same output wins, on every lane.
TEST_P(DeviceContract, LaunchesOfALaneRunInOrder) {
  const std::vector<GroupShape> shapes = {{20, 64, 128}, {40, 64, 128}};
  DeviceSample one(device(), shapes, {});
  DeviceSample two(device(), shapes, {.sample = {.seed = 2}});
  OperandBlocks into_one = two.blocks();
  into_one.c = one.blocks().c;
  const BindingId first = Bind(one);
  const BindingId second = *device().Bind(two.plan(), into_one);
  std::vector<GroupProblem> expected(two.groups().begin(), two.groups().end());
  for (size_t g = 0; g < expected.size(); ++g) expected[g].c = one.groups()[g].c;
  for (int round = 0; round < 40; ++round) {
    const LaneId lane{static_cast<uint32_t>(round % device().limits().lanes)};
    const bool second_last = round % 3 != 0;
    for (uint64_t i = 0; i < 8; ++i) {
      const bool is_second = (i % 2 == 1) == second_last;
      ASSERT_TRUE(device().Launch(lane, is_second ? second : first, i).ok());
    }
    const std::vector<Completion> done = WaitFor(8);
    for (uint64_t i = 0; i < 8; ++i) EXPECT_EQ(done[i].ticket, i);
    ASSERT_TRUE(second_last ? one.Correct(expected) : one.Correct()) << "round " << round;
  }
}

TEST_P(DeviceContract, DestructionNeedsNobodyToPoll) {
  DeviceSample sample(device(), {{64, 256, 512}}, {.sample = {.kind = DataKind::kContest}});
  const BindingId binding = Bind(sample);
  for (uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(device().Launch(LaneId{0}, binding, i).ok());
  // Some finished and not polled, some perhaps under way.
  ASSERT_TRUE(wakes_->WaitBeyond(0));
  device_.reset();
  const uint64_t wakes = wakes_->count();
  EXPECT_EQ(wakes_.use_count(), 1) << "no thread of the device is left to wake anyone";
  EXPECT_EQ(wakes_->count(), wakes);
}

}  // namespace
}  // namespace tetrad
