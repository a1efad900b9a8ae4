// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/stream_slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tetrad {
namespace {

using ::testing::UnorderedElementsAre;

StreamSlot& TakeWithId(StreamSlots& slots, uint64_t id, size_t operand_bytes = 0) {
  v1::ExecuteStreamRequest request;
  request.set_id(id);
  request.mutable_execute()->mutable_inline_operands()->mutable_activations()->resize(
      operand_bytes);
  StreamSlot& slot = slots.Take(request);
  slot.answer.set_id(id);
  return slot;
}

TEST(StreamSlotsTest, IdsAreUniqueWhileTheyAreNamed) {
  StreamSlots slots(3);
  StreamSlot& first = TakeWithId(slots, 7);
  StreamSlot& same = TakeWithId(slots, 7);
  StreamSlot& other = TakeWithId(slots, 8);
  EXPECT_TRUE(slots.full());
  EXPECT_TRUE(slots.Name(first));
  EXPECT_FALSE(slots.Name(same));
  EXPECT_TRUE(slots.Name(other));
  EXPECT_EQ(slots.Find(7), &first);
  EXPECT_THAT(slots.Named(), UnorderedElementsAre(&first, &other));
  slots.Free(same);  // does not take the other's name away
  EXPECT_EQ(slots.Find(7), &first);
  slots.DropRequest(first);  // its id stays
  slots.Forget(first);
  EXPECT_EQ(slots.Find(7), nullptr);
  EXPECT_FALSE(slots.empty());
  slots.Free(first);
  slots.Free(other);
  EXPECT_TRUE(slots.empty());
  EXPECT_EQ(slots.Find(8), nullptr);
}

TEST(StreamSlotsTest, SlotsAreUsedAgainButLargeMessagesAreNotKept) {
  StreamSlots slots(4);
  StreamSlot& large = TakeWithId(slots, 1, 1 << 20);
  large.answer.mutable_response()->mutable_output()->resize(1 << 20);
  slots.Free(large);
  StreamSlot& again = TakeWithId(slots, 2);
  EXPECT_EQ(&again, &large);
  EXPECT_EQ(again.request.id(), 2u);
  EXPECT_EQ(again.answer.code(), 0);
  EXPECT_LT(again.answer.SpaceUsedLong(), 8u << 10);
  slots.Free(again);
  EXPECT_LT(again.request.SpaceUsedLong(), 8u << 10);
}

}  // namespace
}  // namespace tetrad
