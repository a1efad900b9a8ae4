// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/allocation_log.h"

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace tetrad {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Op = AllocationEvent::Op;
using Kind = AllocationEvent::Kind;

constexpr char kHead[] = "tetrad allocation log 1\n";

AllocationEvent Event(Op op, uint64_t number, int64_t bytes,
                      absl::StatusCode outcome = absl::StatusCode::kOk) {
  return {.op = op, .number = number, .bytes = bytes, .outcome = outcome};
}

class AllocationLogTest : public ::testing::Test {
 protected:
  AllocationLogTest()
      : path_(absl::StrCat(::testing::TempDir(), "/allocation_log_test.", ::getpid())) {
    std::filesystem::remove(path_);
  }
  ~AllocationLogTest() override { std::filesystem::remove(path_); }
  std::unique_ptr<AllocationLog> Open(int64_t limit_bytes) {
    auto log = AllocationLog::Open(
        path_, {.limit_bytes = limit_bytes, .now_us = [this] { return now_us_ += 10; }});
    EXPECT_TRUE(log.ok()) << log.status();
    return *std::move(log);
  }
  std::string Text() const {
    std::ifstream stream(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  const std::string path_;
  int64_t now_us_ = 0;
};

TEST_F(AllocationLogTest, WritesOneEventALine) {
  auto log = Open(1 << 20);
  log->Record(Event(Op::kAllocate, 1, 4096));
  std::thread([&] {
    AllocationEvent event = Event(Op::kAllocate, 2, 100, absl::StatusCode::kResourceExhausted);
    event.kind = Kind::kWhole;
    log->Record(event);
  }).join();
  log->Record(Event(Op::kFree, 1, 4096));
  EXPECT_TRUE(log->Close().ok());
  log->Record(Event(Op::kAllocate, 3, 1));  // after the end: nothing
  EXPECT_TRUE(log->Close().ok());
  EXPECT_EQ(Text(), absl::StrCat(kHead, "10 0 allocate block 1 4096 OK\n",
                                 "20 1 allocate whole 2 100 RESOURCE_EXHAUSTED\n",
                                 "30 0 free block 1 4096 OK\n"));
  const auto trace = ParseAllocationLog(Text());
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(FormatAllocationLog(*trace), Text());
}

TEST_F(AllocationLogTest, DestroyingWritesTheRest) {
  Open(1 << 20)->Record(Event(Op::kAllocate, 1, 1));
  EXPECT_EQ(Text(), absl::StrCat(kHead, "10 0 allocate block 1 1 OK\n"));
}

TEST_F(AllocationLogTest, TimeNeverFallsWhateverTheClockDoes) {
  auto log = Open(1 << 20);
  log->Record(Event(Op::kAllocate, 1, 1));
  now_us_ = -1000;
  log->Record(Event(Op::kFree, 1, 1));
  ASSERT_TRUE(log->Close().ok());
  EXPECT_THAT(Text(), HasSubstr("\n10 0 free"));
}

TEST_F(AllocationLogTest, RefusesAnExistingFileAndWhatCannotBeOpened) {
  Open(1 << 20).reset();
  const absl::Status existing = AllocationLog::Open(path_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(existing)) << existing;
  EXPECT_THAT(std::string(existing.message()), HasSubstr(path_));
  EXPECT_EQ(Text(), kHead);
  EXPECT_TRUE(absl::IsNotFound(AllocationLog::Open(path_ + ".none/log").status()));
  const absl::Status small = AllocationLog::Open(path_ + ".small", {.limit_bytes = 255}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(small));
  EXPECT_THAT(std::string(small.message()), HasSubstr("limit_bytes=255"));
  EXPECT_FALSE(std::filesystem::exists(path_ + ".small"));
}

TEST_F(AllocationLogTest, StopsAtTheLimitAndSaysSo) {
  for (const int64_t limit : {256, 257, 300, 5000, 200'000}) {
    SCOPED_TRACE(limit);
    std::filesystem::remove(path_);
    auto log = Open(limit);
    for (int i = 1; i < 10'000; ++i) log->Record(Event(Op::kAllocate, i, 1));
    EXPECT_TRUE(log->Close().ok());
    const std::string text = Text();
    EXPECT_LE(static_cast<int64_t>(text.size()), limit);
    EXPECT_GT(static_cast<int64_t>(text.size()), limit - 100);
    const auto trace = ParseAllocationLog(text);
    ASSERT_TRUE(trace.ok()) << trace.status();
    EXPECT_EQ(trace->stopped_limit_bytes, limit);
    EXPECT_GT(trace->events.size(), 2u);
    EXPECT_EQ(FormatAllocationLog(*trace), text);
  }
}

TEST_F(AllocationLogTest, AFailingWriteEndsTheRecordingAfterAWholeLine) {
  // The kernel takes a part of the second buffer and then refuses.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  auto log = Open(1 << 20);
  rlimit small = before;
  small.rlim_cur = AllocationLog::kBufferBytes + 1000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  for (int i = 1; i < 10'000; ++i) log->Record(Event(Op::kAllocate, i, 1));
  const absl::Status status = log->Close();
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
  const std::string text = Text();
  EXPECT_LE(text.size(), AllocationLog::kBufferBytes);
  EXPECT_GT(text.size(), AllocationLog::kBufferBytes - 100);
  const auto trace = ParseAllocationLog(text);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->stopped_limit_bytes, 0);
}

TEST_F(AllocationLogTest, ManyThreadsWriteWholeLines) {
  constexpr int kThreads = 4;
  constexpr int kEvents = 2000;
  auto log = AllocationLog::Open(path_);
  ASSERT_TRUE(log.ok()) << log.status();
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int j = 1; j <= kEvents; ++j) {
        (*log)->Record(Event(Op::kAllocate, i * kEvents + j, i + 1));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE((*log)->Close().ok());
  const auto trace = ParseAllocationLog(Text());
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->events.size(), size_t{kThreads * kEvents});
  std::set<std::pair<int32_t, int64_t>> seen;  // each thread has one number
  for (const AllocationEvent& event : trace->events) seen.insert({event.thread, event.bytes});
  EXPECT_EQ(seen.size(), size_t{kThreads});
}

TEST(AllocationLogParseTest, NamesLineFieldAndValueOfWhatIsMalformed) {
  const std::string ok = "5 0 allocate block 1 100 OK\n";
  const struct {
    std::string text;
    std::string message;
  } kCases[] = {
      {"", "line 1: line='': must end with a newline"},
      {"tetrad allocation log 10\n", "line 1: version='tetrad allocation log 10': must be"},
      {kHead + ok.substr(0, 10), "line 2: line='5 0 alloca': must end with a newline"},
      {kHead + ok + "\n", "line 3: us='': must be a number from 0 to 9223372036854775807"},
      {kHead + ok + "x 0 free block 1 100 OK\n", "line 3: us='x'"},
      {kHead + ok + "-0 0 free block 1 100 OK\n", "line 3: us='-0'"},
      {kHead + ok + "4 0 free block 1 100 OK\n", "line 3: us='4': must not be below"},
      {kHead + ok + "6 257 free block 1 100 OK\n", "line 3: thread='257': must be a number from 0"},
      {kHead + ok + "6 -1 free block 1 100 OK\n", "line 3: thread='-1'"},
      {kHead + ok + "6 0 Free block 1 100 OK\n", "line 3: op='Free': must be a word like allocate"},
      {kHead + ok + "6 0 free blocks 1 100 OK\n", "line 3: kind='blocks'"},
      {kHead + ok + "6 0 free whole 1 100 OK\n", "line 3: kind='whole': was allocated as another"},
      {kHead + ok + "6 0 free block 0 100 OK\n", "line 3: number='0'"},
      {kHead + ok + "6 0 free block 2 100 OK\n", "line 3: number='2': is not in use"},
      {kHead + ok + "6 0 allocate block 1 100 OK\n", "line 3: number='1': is in use"},
      {kHead + ok + "6 0 allocate block 1 100 INTERNAL\n", "line 3: number='1': is in use"},
      {kHead + ok + "6 0 free block 1 0 OK\n", "line 3: bytes='0'"},
      {kHead + ok + "6 0 free block 1 +100 OK\n", "line 3: bytes='+100'"},
      {kHead + ok + "6 0 free block 1 0100 OK\n", "line 3: bytes='0100'"},
      {kHead + ok + "6 0 free block 1 99 OK\n", "line 3: bytes='99': must be the 100 allocated"},
      {kHead + ok + "6 0 free block 1 100 ok\n", "line 3: outcome='ok'"},
      {kHead + ok + "6 0 free block 1 100 OK 7\n", "line 3: outcome='OK 7'"},
      {kHead + ok + "6 0 free block 1 100\n", "line 3: outcome=''"},
      {kHead + ok + "6 0 free block 1 100 ABORTED\n", "line 3: outcome='ABORTED': must be OK"},
      {kHead + ok + "6 \x01\xFF free block 1 100 OK\n", "line 3: thread='\\x01\\xff'"},
      {kHead + std::string(50, 'x') + "\n", "line 2: us='" + std::string(40, 'x') + "...'"},
      {kHead + std::string("stopped limit_bytes=255\n"), "line 2: limit_bytes='255'"},
      {kHead + std::string("stopped limit_bytes=256 \n"), "line 2: limit_bytes="},
      {kHead + std::string("stopped limit_bytes=256\n") + ok, "line 3: line='5 0 allocate"},
  };
  for (const auto& test : kCases) {
    SCOPED_TRACE(test.text);
    const absl::Status status = ParseAllocationLog(test.text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), StartsWith(test.message));
  }
}

TEST(AllocationLogParseTest, EveryOutcomeReadsBack) {
  AllocationTrace trace;
  for (int code = 0; code <= 16; ++code) {
    trace.events.push_back(Event(Op::kAllocate, code + 1, 1, static_cast<absl::StatusCode>(code)));
  }
  const std::string text = FormatAllocationLog(trace);
  for (int code = 0; code <= 16; ++code) {
    EXPECT_THAT(text,
                HasSubstr(absl::StrCat(
                    " ", absl::StatusCodeToString(static_cast<absl::StatusCode>(code)), "\n")));
  }
  const auto read = ParseAllocationLog(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->events, trace.events);
}

}  // namespace
}  // namespace tetrad
