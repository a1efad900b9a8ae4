// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Completion words are written by the test, as a GPU does, and are read by the
// poller in time.
#include "engine/cuda/completion_poller.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/cuda/simulated_driver/simulated_driver.h"

namespace tetrad::cuda {
namespace {

using Steady = std::chrono::steady_clock;

class CompletionPollerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto context = CudaContext::Create(driver_.driver(), 0, [] {});
    ASSERT_TRUE(context.ok()) << context.status();
    context_ = *std::move(context);
    ASSERT_EQ(driver_.driver().StreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0),
              CUDA_SUCCESS);
  }
  void TearDown() override {
    EXPECT_EQ(driver_.driver().StreamDestroy(stream_), CUDA_SUCCESS);
    context_.reset();
    EXPECT_THAT(driver_.misuse(), ::testing::IsEmpty());
  }

  SimulatedDriver driver_;
  std::unique_ptr<CudaContext> context_;
  CUstream stream_ = nullptr;
};

// The graph has as many records as launches can be under way, so the third launch
// has the record of the first, and nobody makes it before one of the two is told.
TEST_F(CompletionPollerTest, OfAGraphOnTwoLanesNothingIsToldBeforeAllThatEndedIsRead) {
  constexpr uint32_t kDepth = 2;
  // So many that two launches usually end while one look at all lanes is under
  // way, after the first of them and before the last.
  constexpr size_t kLanes = 20'000;
  constexpr uint64_t kRounds = 40;
  CompletionRecord records[kDepth] = {};
  const auto complete = [&](uint64_t sequence) {
    CompletionRecord& record = records[(sequence - 1) % kDepth];
    record.error_word = static_cast<uint32_t>(sequence);
    std::atomic_ref(record.sequence).store(sequence, std::memory_order_release);
  };
  LaunchGraph graph;
  graph.records = records;
  std::atomic<int> told{0};
  const auto ended = [&](const CompletionPoller::Ended& end) {
    EXPECT_EQ(end.error_word, end.launched.sequence);
    // Who is told of the second launches once more, and that ends at once.
    if (end.launched.ticket == 2) complete(end.launched.sequence + 1);
    ++told;
  };
  const std::vector<CUstream> lanes(kLanes, stream_);
  CompletionPoller poller(*context_, lanes, kDepth, kDepth, ended, [] {});
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t first = 3 * round + 1;
    told = 0;
    poller.Push(0, {&graph, first, 1, 0});
    poller.Push(kLanes - 1, {&graph, first + 1, 2, 0});
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    complete(first);
    complete(first + 1);
    const auto until = Steady::now() + std::chrono::seconds(30);
    while (told < 2 && Steady::now() < until) std::this_thread::yield();
    if (told == 2) continue;
    ADD_FAILURE() << "a launch is lost in round " << round;
    complete(first);  // so that the poller ends
    return;
  }
}

}  // namespace
}  // namespace tetrad::cuda
