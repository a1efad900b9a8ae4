// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Turns on one fault after another in the kernels and asks the verification that
// everything else relies on whether it notices.
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/compare.h"
#include "kernels/cpu/grouped_gemm.h"
#include "kernels/cpu/run_groups.h"
#include "kernels/mutant.h"
#include "kernels/sample.h"

namespace tetrad {
namespace {

using cpu::InstructionSet;

// Every N is above its M, so that no fault of layout leaves the buffers.
constexpr GroupShape kShapes[] = {{20, 50, 352}, {0, 16, 64}, {5, 37, 96}, {33, 64, 608}};

bool ProblemPasses(InstructionSet set, const SampleOptions& options) {
  Operands operands(kShapes, options);
  cpu::RunGroups(set, options.types, operands.groups(), {});
  const VerifyOptions verify{.check = IsExact(options.kind) ? Check::kBits : Check::kBound};
  return Verify(options.types, operands.groups(), verify).pass &&
         operands.OnlyOutputWritten(operands.groups());
}

bool ProblemsPass(InstructionSet set) {
  const auto nvfp4 = ActivationType::kNvfp4;
  const auto linear = ScaleLayout::kLinear;
  const auto blocked = ScaleLayout::kBlocked;
  const auto rows = OutputLayout::kRowMajor;
  const auto columns = OutputLayout::kColumnMajor;
  const SampleOptions problems[] = {
      {.types = {nvfp4, OutputType::kFp16, blocked, blocked, rows}, .kind = DataKind::kContest},
      {.types = {nvfp4, OutputType::kFp16, linear, blocked, columns}, .c_padding = 5},
      {.types = {nvfp4, OutputType::kFp32, blocked, linear, rows},
       .row_scales = true,
       .c_padding = 3},
      {.types = {ActivationType::kFp16, OutputType::kBf16, linear, linear, rows},
       .row_scales = true},
      {.types = {ActivationType::kBf16, OutputType::kFp16, linear, blocked, rows}, .c_padding = 1},
      {.types = {nvfp4, OutputType::kBf16, blocked, blocked, columns}, .kind = DataKind::kGeneral},
  };
  bool pass = true;
  for (const SampleOptions& options : problems) pass = ProblemPasses(set, options) && pass;
  return pass;
}

// Infinite and NaN results: they are exact too.
bool SpecialValuesPass(InstructionSet set) {
  const SampleOptions options{.types = {.a_scale_layout = ScaleLayout::kBlocked}};
  Operands operands(kShapes, options);
  std::vector<GroupProblem> groups(operands.groups().begin(), operands.groups().end());
  groups[0].alpha = 1e30f;
  const GroupProblem& poisoned = groups[2];
  const_cast<uint8_t*>(poisoned.a_scales)[BlockedScaleOffset(3, 4, poisoned.k)] = kUe4m3Nan;
  cpu::RunGroups(set, options.types, groups, {});
  return Verify(options.types, groups, {}).pass;
}

struct DeviceCase {
  MSource source;
  int64_t capacity;
  std::vector<int32_t> values;
  std::vector<int32_t> stacked;  // rows the operands have, group by group
  std::vector<int32_t> live;     // what must be computed
  uint32_t error;
};

bool DeviceCasePasses(InstructionSet set, const DeviceCase& c) {
  std::vector<GroupShape> shapes;
  for (const int32_t m : c.stacked) shapes.push_back({m, 40, 96});
  const SampleOptions options{
      .types = {.c_type = OutputType::kFp32, .a_scale_layout = ScaleLayout::kBlocked},
      .form = GroupForm::kStacked,
      .row_scales = true};
  Operands operands(shapes, options);
  std::vector<GroupProblem> expected;
  for (size_t g = 0; g < c.live.size(); ++g) {
    expected.push_back(operands.groups()[g]);
    expected.back().m = c.live[g];
  }
  DeviceMProblem problem = operands.stack();
  problem.m_source = c.source;
  problem.groups = static_cast<int32_t>(c.live.size());
  problem.capacity_rows = c.capacity;
  problem.m_values = c.values.data();
  std::vector<GroupProblem> groups(c.live.size());
  uint32_t error = 0;
  cpu::ResolveDeviceM(problem, options.types, groups, &error);
  cpu::RunGroups(set, options.types, groups, {});
  return error == c.error && Verify(options.types, expected, {}).pass &&
         operands.OnlyOutputWritten(expected);
}

bool DeviceCasesPass(InstructionSet set) {
  // A group more than is asked for: what goes beyond the capacity stays in memory.
  const DeviceCase cases[] = {
      {MSource::kCounts, 9, {4, 0, 9}, {9, 9, 9, 9}, {4, 0, 9}, 0},
      {MSource::kCounts, 9, {4, 11, -1}, {9, 9, 9, 9}, {4, 9, 0}, kErrorCountOutOfRange},
      {MSource::kOffsets, 40, {0, 7, 7, 20, 33}, {7, 0, 13, 13}, {7, 0, 13, 13}, 0},
      {MSource::kOffsets, 20, {0, 7, 7, 25}, {7, 0, 13, 9}, {7, 0, 13}, kErrorCountOutOfRange},
  };
  bool pass = true;
  for (const DeviceCase& c : cases) pass = DeviceCasePasses(set, c) && pass;
  return pass;
}

bool VerificationPasses(InstructionSet set) {
  // All of them, whatever the first says: each must survive every fault.
  const bool problems = ProblemsPass(set);
  const bool special = SpecialValuesPass(set);
  const bool device = DeviceCasesPass(set);
  return problems && special && device;
}

class MutantsTest : public testing::TestWithParam<InstructionSet> {
 protected:
  void SetUp() override {
    if (!cpu::Supported(GetParam())) GTEST_SKIP() << "not supported by this processor";
  }
  void TearDown() override { SetMutant(Mutant::kNone); }
};

TEST_P(MutantsTest, WithoutAFaultVerificationPasses) {
  SetMutant(Mutant::kNone);
  EXPECT_TRUE(VerificationPasses(GetParam()));
}

TEST_P(MutantsTest, EveryFaultIsNoticed) {
  for (int i = 1; i < static_cast<int>(Mutant::kCount); ++i) {
    const auto mutant = static_cast<Mutant>(i);
    SetMutant(mutant);
    EXPECT_FALSE(VerificationPasses(GetParam())) << Name(mutant);
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, MutantsTest,
                         testing::Values(InstructionSet::kPortable, InstructionSet::kAvx2,
                                         InstructionSet::kAvx512),
                         [](const auto& info) { return std::string(cpu::Name(info.param)); });

}  // namespace
}  // namespace tetrad
