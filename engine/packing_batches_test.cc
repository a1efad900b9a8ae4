// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/packing_batches.h"

#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "engine/support/status_macros.h"
#include "kernels/random.h"

namespace tetrad {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

std::vector<GroupDims> Drawn(Random& random) {
  std::vector<GroupDims> groups(1 + random.Below(12));
  for (GroupDims& dims : groups) {
    dims.n = 1 + static_cast<int32_t>(random.Below(random.OneIn(2) ? 4 : 400));
    dims.k = 32 * (1 + static_cast<int32_t>(random.Below(random.OneIn(2) ? 2 : 20)));
  }
  return groups;
}

int64_t CountOf(const PackingBatches& batches, int64_t scratch_bytes) {
  int64_t count = 0;
  EXPECT_TRUE(batches
                  .ForEach(scratch_bytes,
                           [&](const PackingBatch&) {
                             ++count;
                             return absl::OkStatus();
                           })
                  .ok());
  return count;
}

// Every group once, from the last to the first, each where it belongs; what a batch writes is
// over no codes that are still to be read, and its own fit into scratch.
TEST(PackingBatchesTest, NoBatchWritesOverCodesThatAreStillToBeRead) {
  Random random(1);
  for (int round = 0; round < 2000; ++round) {
    const std::vector<GroupDims> groups = Drawn(random);
    const auto layout = random.OneIn(2) ? ScaleLayout::kLinear : ScaleLayout::kBlocked;
    const PackingBatches batches(groups, layout);
    const int64_t least = batches.least_scratch_bytes();
    const int64_t scratch =
        random.OneIn(4) ? least
                        : least + random.Below(static_cast<uint32_t>(batches.code_bytes() + 100));
    const int64_t room = scratch - batches.scratch_codes();
    ASSERT_GE(batches.scratch_codes(), batches.scale_bytes());
    ASSERT_EQ(batches.scratch_codes() % 16, 0) << "kernels ask for it";
    ASSERT_GE(batches.packed_bytes(), batches.code_bytes() + batches.scale_bytes());
    size_t left = groups.size();
    int64_t count = 0;
    const absl::Status status = batches.ForEach(scratch, [&](const PackingBatch& batch) {
      ++count;
      EXPECT_EQ(batch.end, left);
      EXPECT_LT(batch.begin, batch.end);
      const std::span<const GroupDims> all(groups);
      const PackingBatches before(all.first(batch.begin), layout);
      const PackingBatches through(all.first(batch.end), layout);
      EXPECT_EQ(batch.codes, before.code_bytes());
      EXPECT_EQ(batch.scales, before.scale_bytes());
      EXPECT_EQ(batch.packed, before.packed_bytes());
      EXPECT_EQ(batch.code_bytes, through.code_bytes() - before.code_bytes());
      EXPECT_LE(batch.code_bytes, room);
      EXPECT_GE(batch.packed, batch.codes);
      left = batch.begin;
      return absl::OkStatus();
    });
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(left, 0u);
    ASSERT_LT(count, 2 * batches.code_bytes() / room + 2);
    if (HasFailure()) return;
  }
}

TEST(PackingBatchesTest, ScratchIsTheScalesAndABatchOfCodes) {
  const GroupDims layer{7168, 4096};  // 14 MiB of codes
  const int64_t scales = int64_t{7168} * 4096 / 16;
  const struct {
    std::vector<GroupDims> groups;
    int64_t scratch, batches;
  } cases[] = {
      {{layer}, scales + 14 * kMiB, 1},                    // no more than there is
      {std::vector(8, layer), 8 * scales + 64 * kMiB, 2},  // four whole ones a batch
      // The largest group, which goes alone.
      {{layer, {65536, 4096}, layer}, 2 * scales + 16 * kMiB + 128 * kMiB, 3},
      {std::vector(1 << 17, GroupDims{1, 32}), (1 << 17) * (2 + 16), 1},
  };
  for (const auto& [groups, scratch, count] : cases) {
    const PackingBatches batches(groups, ScaleLayout::kLinear);
    EXPECT_EQ(batches.scratch_bytes(), scratch);
    EXPECT_EQ(CountOf(batches, batches.scratch_bytes()), count);
  }
}

TEST(PackingBatchesTest, AFailureEndsIt) {
  const std::vector<GroupDims> groups(3, GroupDims{5, 64});
  const PackingBatches batches(groups, ScaleLayout::kBlocked);
  int calls = 0;
  const absl::Status status =
      batches.ForEach(batches.least_scratch_bytes(), [&](const PackingBatch&) {
        return ++calls < 2 ? absl::OkStatus() : absl::InternalError("as told");
      });
  EXPECT_EQ(status, absl::InternalError("as told"));
  EXPECT_EQ(calls, 2);
}

TEST(PackingBatchesTest, OfNoGroupsThereIsNothing) {
  const PackingBatches batches({}, ScaleLayout::kLinear);
  EXPECT_EQ(batches.scratch_bytes(), 0);
  EXPECT_EQ(CountOf(batches, 0), 0);
}

}  // namespace
}  // namespace tetrad
