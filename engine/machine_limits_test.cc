// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/machine_limits.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <stdlib.h>

namespace tetrad {
namespace {

class MachineLimitsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/tetrad-limits.XXXXXX";
    ASSERT_NE(::mkdtemp(pattern), nullptr);
    root_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path full = root_ + "/" + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  void InGroup(const std::string& line) const { Write("proc/self/cgroup", line); }
  CgroupLimits Read() const { return ReadCgroupLimits(root_); }

  std::string root_;
};

TEST_F(MachineLimitsTest, NothingThereLimitsNothing) {
  EXPECT_EQ(Read().processors, std::nullopt);
  EXPECT_EQ(Read().memory_bytes, std::nullopt);
  const MachineLimits machine = ReadMachineLimits(root_);
  EXPECT_GE(machine.threads, 1);
  EXPECT_GT(machine.memory_bytes, 1 << 20);
}

TEST_F(MachineLimitsTest, AContainerSeesItsGroupAsTheRoot) {
  InGroup("0::/\n");
  Write("sys/fs/cgroup/cpu.max", "150000 100000\n");
  Write("sys/fs/cgroup/memory.max", "536870912\n");
  EXPECT_EQ(Read().processors, 1.5);
  EXPECT_EQ(Read().memory_bytes, 512 << 20);
}

TEST_F(MachineLimitsTest, TheLeastOfAGroupAndItsAncestorsCounts) {
  InGroup("4:memory:/other\n0::/system.slice/tetradd.service\n");
  const std::string slice = "sys/fs/cgroup/system.slice/";
  Write(slice + "tetradd.service/cpu.max", "max 100000\n");
  Write(slice + "tetradd.service/memory.max", "4096000\n");
  Write(slice + "cpu.max", "300000 100000\n");
  Write(slice + "memory.max", "1024000\n");
  EXPECT_EQ(Read().processors, 3);
  EXPECT_EQ(Read().memory_bytes, 1024000);
  Write(slice + "tetradd.service/cpu.max", "50000 200000\n");
  Write(slice + "memory.max", "max\n");
  EXPECT_EQ(Read().processors, 0.25);
  EXPECT_EQ(Read().memory_bytes, 4096000);
}

TEST_F(MachineLimitsTest, APathThatIsNotVisibleFallsBackToTheRoot) {
  Write("sys/fs/cgroup/memory.max", "777\n");
  Write("sys/fs/cgroup/cpu.max", "200000\n");  // the period is 100 ms by default
  for (const char* line : {"0::/kubepods/pod7/c\n", "0::/../../elsewhere\n", "1:cpu:/\n", ""}) {
    InGroup(line);
    EXPECT_EQ(Read().memory_bytes, 777) << line;
    EXPECT_EQ(Read().processors, 2) << line;
  }
}

TEST_F(MachineLimitsTest, TextThatIsNoLimitIsNone) {
  InGroup("0::/\n");
  for (const char* text :
       {"max", "", "-1 100000", "0 100000", "1e999", "nan 5", "100000 0", "100000 x"}) {
    Write("sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(Read().processors, std::nullopt) << text;
  }
}

TEST_F(MachineLimitsTest, TheMachineIsTheUpperBound) {
  const MachineLimits machine = ReadMachineLimits(root_);
  InGroup("0::/\n");
  Write("sys/fs/cgroup/cpu.max", "100000000000 100000\n");
  Write("sys/fs/cgroup/memory.max", "99999999999999999999\n");
  EXPECT_EQ(ReadMachineLimits(root_).threads, machine.threads);
  EXPECT_EQ(ReadMachineLimits(root_).memory_bytes, machine.memory_bytes);
  Write("sys/fs/cgroup/cpu.max", "1000 100000\n");
  Write("sys/fs/cgroup/memory.max", "1048576\n");
  EXPECT_EQ(ReadMachineLimits(root_).threads, 1);
  EXPECT_EQ(ReadMachineLimits(root_).memory_bytes, 1 << 20);
}

}  // namespace
}  // namespace tetrad
