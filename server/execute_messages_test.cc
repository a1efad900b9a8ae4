// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/execute_messages.h"

#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "engine/checkpoint/heap_meter.h"

namespace tetrad {
namespace {

using Holder = grpc::MessageHolder<v1::ExecuteRequest, v1::ExecuteResponse>;
using testing::HeapMeter;

// With operands in blocks; no name is so long that its text leaves the arena.
std::string SmallRequest() {
  v1::ExecuteRequest request;
  request.set_plan("plan/7");
  request.set_weights("w@3");
  v1::BlockOperands& operands = *request.mutable_block_operands();
  operands.mutable_activations()->set_block("b/1");
  operands.mutable_activation_scales()->set_block("b/2");
  operands.mutable_output()->set_block("b/3");
  for (int i = 0; i < 16; ++i) operands.add_alpha(1);
  return request.SerializeAsString();
}

void FillLarge(v1::ExecuteRequest& request) {
  v1::InlineOperands& operands = *request.mutable_inline_operands();
  operands.set_activations(std::string(4 << 20, 'x'));
  operands.mutable_m_values()->Resize(1 << 20, 1);
}

void ReleaseElsewhere(Holder* holder) {
  std::thread([holder] { holder->Release(); }).join();
}

TEST(ExecuteMessagesTest, ASmallRequestTakesNothingFromTheHeapOnceOneWasThere) {
  const std::string bytes = SmallRequest();
  ExecuteMessages messages;
  const void* first = nullptr;
  size_t peak = 0;
  for (int i = 0; i < 5; ++i) {
    const HeapMeter meter;
    Holder* const holder = messages.AllocateMessages();
    EXPECT_EQ(holder->request()->ByteSizeLong(), 0u);
    EXPECT_EQ(holder->response()->ByteSizeLong(), 0u);
    ASSERT_TRUE(holder->request()->ParseFromString(bytes));
    holder->response()->mutable_timings();
    holder->response()->set_floor_us(1);
    peak = meter.peak();
    if (i == 0) first = holder->request();
    EXPECT_EQ(holder->request(), first);
    // As a rule another thread ends a call than the one that read it.
    ReleaseElsewhere(holder);
    if (i > 0) {
      EXPECT_EQ(peak, 0u);
    }
  }
}

TEST(ExecuteMessagesTest, NothingLargeOutlivesItsCall) {
  ExecuteMessages messages;
  Holder* const one = messages.AllocateMessages();
  Holder* const other = messages.AllocateMessages();
  const HeapMeter meter;
  FillLarge(*one->request());
  one->response()->set_output(std::string(4 << 20, 'y'));
  const size_t peak = meter.peak();
  one->Release();
  FillLarge(*other->request());
  other->response()->set_output(std::string(4 << 20, 'y'));
  EXPECT_LT(meter.peak(), peak + (1 << 20));
  other->Release();
}

TEST(ExecuteMessagesTest, NoMorePairsAreKeptThanAllowed) {
  constexpr size_t kKept = 2, kUnderWay = 10;
  ExecuteMessages messages(kKept);
  std::vector<Holder*> holders;
  for (size_t i = 0; i < kUnderWay; ++i) holders.push_back(messages.AllocateMessages());
  for (Holder* const holder : holders) holder->Release();
  const HeapMeter meter;
  for (Holder*& holder : holders) holder = messages.AllocateMessages();
  EXPECT_GE(meter.peak(), (kUnderWay - kKept) * ExecuteMessages::kBlockBytes);
  EXPECT_LT(meter.peak(), (kUnderWay - kKept + 1) * ExecuteMessages::kBlockBytes);
  for (Holder* const holder : holders) holder->Release();
}

}  // namespace
}  // namespace tetrad
