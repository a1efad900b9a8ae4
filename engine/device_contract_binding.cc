// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The contract of Bind(), Rebind() and Unbind().
#include <atomic>
#include <set>
#include <thread>

#include "engine/device_contract.h"

namespace tetrad {
namespace {

using ::testing::HasSubstr;

// All eight operands.
DeviceSampleOptions WithEveryOperand() {
  DeviceSampleOptions options;
  options.sample.form = GroupForm::kStacked;
  options.sample.kind = DataKind::kContest;
  options.sample.row_scales = true;
  options.m_source = MSource::kCounts;
  return options;
}

struct BadBlock {
  const char* what;
  BlockRef (*spoil)(BlockRef);
  absl::StatusCode code;
};
constexpr BadBlock kBadBlocks[] = {{"one byte short",
                                    [](BlockRef b) {
                                      return BlockRef{b.allocation, b.offset, b.bytes - 1};
                                    },
                                    absl::StatusCode::kInvalidArgument},
                                   {"empty",
                                    [](BlockRef b) {
                                      return BlockRef{b.allocation, b.offset, 0};
                                    },
                                    absl::StatusCode::kInvalidArgument},
                                   {"negative size",
                                    [](BlockRef b) {
                                      return BlockRef{b.allocation, b.offset, INT64_MIN};
                                    },
                                    absl::StatusCode::kInvalidArgument},
                                   {"one byte off",
                                    [](BlockRef b) {
                                      return BlockRef{b.allocation, b.offset + 1, b.bytes};
                                    },
                                    absl::StatusCode::kInvalidArgument},
                                   {"half aligned",
                                    [](BlockRef b) {
                                      return BlockRef{b.allocation, b.offset + 8, b.bytes};
                                    },
                                    absl::StatusCode::kInvalidArgument},
                                   {"before the allocation",
                                    [](BlockRef b) {
                                      return BlockRef{b.allocation, -16, b.bytes};
                                    },
                                    absl::StatusCode::kInvalidArgument},
                                   {"far before",
                                    [](BlockRef b) {
                                      return BlockRef{b.allocation, INT64_MIN, b.bytes};
                                    },
                                    absl::StatusCode::kInvalidArgument},
                                   {"beyond the allocation",
                                    [](BlockRef b) {
                                      return BlockRef{b.allocation, int64_t{1} << 30, b.bytes};
                                    },
                                    absl::StatusCode::kInvalidArgument},
                                   {"far beyond",
                                    [](BlockRef b) {
                                      return BlockRef{b.allocation, INT64_MAX - 15, b.bytes};
                                    },
                                    absl::StatusCode::kInvalidArgument},
                                   {"without end",
                                    [](BlockRef b) {
                                      return BlockRef{b.allocation, b.offset, INT64_MAX};
                                    },
                                    absl::StatusCode::kInvalidArgument},
                                   {"of no allocation",
                                    [](BlockRef b) {
                                      return BlockRef{AllocationId::kNone, b.offset, b.bytes};
                                    },
                                    absl::StatusCode::kAborted}};

// Calls `refuse` with each of the sample's operands spoilt in each way.
template <typename Refuse>
void ExpectBadBlocksRefused(const DeviceSample& sample, const Refuse& refuse) {
  for (const DeviceSample::NamedOperand& operand : sample.operands()) {
    for (const BadBlock& bad : kBadBlocks) {
      OperandBlocks blocks = sample.blocks();
      blocks.*operand.block = bad.spoil(blocks.*operand.block);
      const absl::Status status = refuse(blocks);
      EXPECT_EQ(status.code(), bad.code) << operand.name << " " << bad.what << ": " << status;
      EXPECT_THAT(Text(status), HasSubstr(std::string(operand.name) + ": ")) << bad.what;
    }
  }
}

TEST_P(DeviceContract, EveryBlockIsCheckedAgainstThePlan) {
  DeviceSample sample(device(), {{2, 40, 64}, {2, 40, 64}}, WithEveryOperand());
  // Packed weights have no scales of their own.
  const size_t missing = device().limits().packs_weights ? 1 : 0;
  ASSERT_EQ(sample.operands().size(), DeviceSample::kOperands - missing);
  ExpectBadBlocksRefused(sample, [&](const OperandBlocks& blocks) {
    return device().Bind(sample.plan(), blocks).status();
  });
  EXPECT_TRUE(sample.FreeAll()) << "a failed Bind() holds nothing";
}

// The last legal place of each operand, and the first illegal one.
TEST_P(DeviceContract, BlocksMayEndWhereTheirAllocationEnds) {
  DeviceSample sample(device(), {{2, 40, 64}, {2, 40, 64}}, WithEveryOperand());
  for (const DeviceSample::NamedOperand& operand : sample.operands()) {
    OperandBlocks blocks = sample.blocks();
    BlockRef& block = blocks.*operand.block;
    const Allocation memory = Allocate(block.bytes);
    const int64_t last = (memory.bytes - block.bytes) / 16 * 16;
    block = {memory.id, last, memory.bytes - last};
    const auto bound = device().Bind(sample.plan(), blocks);
    ASSERT_TRUE(bound.ok()) << operand.name << ": " << bound.status();
    ASSERT_TRUE(device().Unbind(*bound).ok());
    block.bytes += 1;
    EXPECT_EQ(device().Bind(sample.plan(), blocks).status().code(), Code::kInvalidArgument)
        << operand.name;
    block = {memory.id, last + 16, (sample.blocks().*operand.block).bytes};
    if (block.offset + block.bytes > memory.bytes) {
      EXPECT_EQ(device().Bind(sample.plan(), blocks).status().code(), Code::kInvalidArgument)
          << operand.name;
    }
  }
}

TEST_P(DeviceContract, BoundMemoryIsNotFreed) {
  DeviceSample sample(device(), {{2, 40, 64}, {2, 40, 64}}, WithEveryOperand());
  const BindingId first = Bind(sample), second = Bind(sample);
  const auto expect_held = [&] {
    for (const DeviceSample::NamedOperand& operand : sample.operands()) {
      EXPECT_EQ(device().Free((sample.blocks().*operand.block).allocation).code(),
                Code::kFailedPrecondition)
          << operand.name;
    }
  };
  expect_held();
  ASSERT_TRUE(device().Unbind(first).ok());
  expect_held();
  ASSERT_TRUE(device().Unbind(second).ok());
  EXPECT_TRUE(sample.FreeAll());
  EXPECT_EQ(device().memory_use().allocated_bytes, 0);
}

TEST_P(DeviceContract, AStaleBindingIsRefusedByEveryCall) {
  DeviceSample sample(device(), {{3, 32, 64}});
  std::set<BindingId> ids;
  BindingId gone = BindingId::kNone;
  for (int i = 0; i < 100; ++i) {
    gone = Bind(sample);
    EXPECT_TRUE(ids.insert(gone).second) << "an id came back";
    ASSERT_TRUE(device().Unbind(gone).ok());
  }
  const BindingId live = Bind(sample);
  for (const BindingId id : {gone, BindingId::kNone, static_cast<BindingId>(~uint64_t{0})}) {
    EXPECT_EQ(device().Unbind(id).code(), Code::kAborted);
    EXPECT_EQ(device().Rebind(id, sample.blocks()).code(), Code::kAborted);
    EXPECT_EQ(device().Launch(LaneId{0}, id, 1).code(), Code::kAborted);
  }
  EXPECT_EQ(RunOnce(live).code, Code::kOk);
  EXPECT_TRUE(sample.Correct());
}

TEST_P(DeviceContract, ABindingKeepsItsPlan) {
  std::weak_ptr<const Plan> plan;
  BindingId binding;
  {
    DeviceSample sample(device(), {{3, 32, 64}});
    plan = sample.plan();
    binding = Bind(sample);
  }
  EXPECT_FALSE(plan.expired());
  EXPECT_EQ(RunOnce(binding).code, Code::kOk);
  ASSERT_TRUE(device().Unbind(binding).ok());
  EXPECT_TRUE(plan.expired());
}

TEST_P(DeviceContract, ABindingThatIsLaunchedIsNeitherUnboundNorRebound) {
  DeviceSample sample(device(), {{64, 256, 512}}, {.sample = {.kind = DataKind::kContest}});
  for (const bool rebind : {false, true}) {
    EXPECT_TRUE(Eventually([&] {
      const BindingId binding = Bind(sample);
      for (uint64_t i = 0; i < 8; ++i) {
        EXPECT_TRUE(device().Launch(LaneId{0}, binding, i).ok());
      }
      const absl::Status status =
          rebind ? device().Rebind(binding, sample.blocks()) : device().Unbind(binding);
      WaitFor(8);
      const bool refused = absl::IsFailedPrecondition(status);
      EXPECT_TRUE(refused || status.ok()) << status;
      EXPECT_EQ(device().Unbind(binding).ok(), refused || rebind);
      return refused;
    }));
  }
  EXPECT_TRUE(sample.Correct());
  EXPECT_TRUE(sample.FreeAll());
}

TEST_P(DeviceContract, ARebindTakesOtherMemoryAndLeavesTheOld) {
  for (const GroupForm form : {GroupForm::kSeparate, GroupForm::kStacked}) {
    const std::vector<GroupShape> shapes = {{5, 48, 96}, {0, 48, 96}, {70, 48, 96}};
    DeviceSampleOptions options{.sample = {.form = form, .row_scales = true}};
    DeviceSample old(device(), shapes, options);
    options.sample.seed = 2;
    DeviceSample next(device(), shapes, options);
    const BindingId binding = Bind(old);
    RunOnce(binding);
    EXPECT_TRUE(old.Correct());
    old.ClearOutput();
    ASSERT_TRUE(device().Rebind(binding, next.blocks()).ok());
    RunOnce(binding);
    EXPECT_TRUE(next.Correct());
    EXPECT_TRUE(old.NothingOutsideTheOutput());
    EXPECT_FALSE(old.Correct()) << "the old output stays as it was";
    EXPECT_TRUE(old.FreeAll()) << "a binding holds only what it is bound to";
    for (const DeviceSample::NamedOperand& operand : next.operands()) {
      EXPECT_EQ(device().Free((next.blocks().*operand.block).allocation).code(),
                Code::kFailedPrecondition)
          << operand.name;
    }
    ASSERT_TRUE(device().Unbind(binding).ok());
    EXPECT_TRUE(next.FreeAll());
  }
}

// Only the weights change: what a new version of them needs.
TEST_P(DeviceContract, ARebindMayTakeOtherWeightsOnly) {
  const std::vector<GroupShape> shapes = {{5, 48, 96}, {7, 48, 96}};
  DeviceSampleOptions options{.sample = {.kind = DataKind::kContest}};
  DeviceSample sample(device(), shapes, options);
  options.sample.seed = 2;
  DeviceSample other(device(), shapes, options);
  const BindingId binding = Bind(sample);
  OperandBlocks blocks = sample.blocks();
  blocks.b = other.blocks().b;
  blocks.b_scales = other.blocks().b_scales;
  std::vector<GroupProblem> expected(sample.groups().begin(), sample.groups().end());
  for (size_t g = 0; g < expected.size(); ++g) {
    expected[g].b = other.groups()[g].b;
    expected[g].b_scales = other.groups()[g].b_scales;
  }
  for (int round = 0; round < 4; ++round) {
    sample.ClearOutput();
    const bool with_other = round % 2 == 0;
    ASSERT_TRUE(device().Rebind(binding, with_other ? blocks : sample.blocks()).ok());
    RunOnce(binding);
    EXPECT_TRUE(with_other ? sample.Correct(expected) : sample.Correct()) << round;
    EXPECT_FALSE(with_other ? sample.Correct() : sample.Correct(expected)) << round;
  }
  EXPECT_TRUE(other.FreeAll());
  ASSERT_TRUE(device().Unbind(binding).ok());
  EXPECT_TRUE(sample.FreeAll());
}

TEST_P(DeviceContract, AFailedRebindChangesNothing) {
  const std::vector<GroupShape> shapes = {{2, 40, 64}, {2, 40, 64}};
  DeviceSampleOptions options = WithEveryOperand();
  DeviceSample old(device(), shapes, options);
  options.sample.seed = 2;
  DeviceSample next(device(), shapes, options);
  const int32_t counts[] = {2, 2};
  old.SetMValues(counts);
  next.SetMValues(counts);
  const BindingId binding = Bind(old);
  ExpectBadBlocksRefused(next, [&](const OperandBlocks& blocks) {
    const absl::Status status = device().Rebind(binding, blocks);
    old.ClearOutput();
    RunOnce(binding);
    EXPECT_TRUE(old.Correct()) << "after " << status;
    return status;
  });
  ASSERT_TRUE(device().Seal(next.blocks().c.allocation).ok());
  const absl::Status sealed = device().Rebind(binding, next.blocks());
  EXPECT_EQ(sealed.code(), Code::kFailedPrecondition) << sealed;
  EXPECT_THAT(Text(sealed), HasSubstr("output: "));
  EXPECT_TRUE(next.FreeAll()) << "a failed Rebind() holds nothing";
  for (const DeviceSample::NamedOperand& operand : old.operands()) {
    EXPECT_EQ(device().Free((old.blocks().*operand.block).allocation).code(),
              Code::kFailedPrecondition)
        << operand.name;
  }
  ASSERT_TRUE(device().Unbind(binding).ok());
  EXPECT_TRUE(old.FreeAll());
}

TEST_P(DeviceContract, HoldsOnMemoryStayBalancedOverManyRebinds) {
  const std::vector<GroupShape> shapes = {{2, 40, 64}, {2, 40, 64}};
  DeviceSample samples[] = {{device(), shapes, WithEveryOperand()},
                            {device(), shapes, WithEveryOperand()}};
  const BindingId binding = Bind(samples[0]);
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(device().Rebind(binding, samples[i % 3 == 0].blocks()).ok());
  }
  EXPECT_FALSE(device().Free(samples[0].blocks().a.allocation).ok());
  EXPECT_TRUE(samples[1].FreeAll());
  ASSERT_TRUE(device().Unbind(binding).ok());
  EXPECT_TRUE(samples[0].FreeAll());
  EXPECT_EQ(device().memory_use().allocations, 0);
}

// Launches and rebinds from two threads: each call wins or is refused, and no
// launch computes with memory of both sides. Many groups, so that both take long.
TEST_P(DeviceContract, LaunchesAndRebindsExcludeEachOther) {
  const std::vector<GroupShape> shapes(2000, {1, 8, 32});
  DeviceSampleOptions options{.sample = {.kind = DataKind::kContest, .form = GroupForm::kStacked}};
  DeviceSample one(device(), shapes, options);
  options.sample.seed = 2;
  DeviceSample two(device(), shapes, options);
  OperandBlocks blocks[] = {one.blocks(), two.blocks()};
  blocks[1].c = blocks[0].c;
  const auto output = [&] {
    return Read(blocks[0].c.allocation, blocks[0].c.offset, static_cast<size_t>(blocks[0].c.bytes));
  };
  std::vector<std::byte> expected[2];
  const BindingId binding = Bind(one);
  for (int i = 1; i >= 0; --i) {
    ASSERT_TRUE(device().Rebind(binding, blocks[i]).ok());
    RunOnce(binding);
    expected[i] = output();
  }
  ASSERT_TRUE(one.Correct());
  ASSERT_NE(expected[0], expected[1]);

  constexpr int kRounds = 50;
  std::atomic<int> asked{0}, begun{0};
  std::thread rebinder([&] {
    int side = 1;
    for (int round = 1; round <= kRounds; ++round) {
      while (asked < round) std::this_thread::yield();
      begun = round;
      const absl::Status status = device().Rebind(binding, blocks[side]);
      EXPECT_TRUE(status.ok() || absl::IsFailedPrecondition(status)) << status;
      if (status.ok()) side = 1 - side;
    }
  });
  for (int round = 1; round <= kRounds; ++round) {
    asked = round;
    while (begun < round) std::this_thread::yield();
    EXPECT_TRUE(Eventually([&] {
      const absl::Status status = device().Launch(LaneId{0}, binding, 1);
      EXPECT_TRUE(status.ok() || absl::IsFailedPrecondition(status)) << status;
      return status.ok();
    }));
    WaitFor(1);
    const std::vector<std::byte> got = output();
    EXPECT_TRUE(got == expected[0] || got == expected[1]) << "round " << round;
  }
  rebinder.join();
  ASSERT_TRUE(device().Unbind(binding).ok());
  EXPECT_TRUE(one.FreeAll());
  EXPECT_TRUE(two.FreeAll());
}

}  // namespace
}  // namespace tetrad
