// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Every death is one of a process of its own, so that this one stays as it was.
#include "server/crash_report.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::KilledBySignal;

constexpr Version kVersion = {"1.2.3", "abcdef", "GNU 99"};

class CrashReportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/tetrad-crash.XXXXXX";
    ASSERT_NE(::mkdtemp(pattern), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return folder_ + "/report"; }
  std::string Report() const {
    std::ifstream file(path());
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string folder_;
};

// Named, and not inlined, so that the report can be asked for it.
[[gnu::noinline]] void DieHere(int signal) {
  std::raise(signal);
  asm volatile("");  // not a tail call
}

TEST_F(CrashReportTest, EverySignalIsReportedAndKillsAsItWould) {
  const struct {
    int signal;
    const char* name;
  } kCases[] = {{SIGSEGV, "SIGSEGV"},
                {SIGBUS, "SIGBUS"},
                {SIGILL, "SIGILL"},
                {SIGFPE, "SIGFPE"},
                {SIGABRT, "SIGABRT"}};
  for (const auto& test : kCases) {
    std::filesystem::remove(path());
    EXPECT_EXIT(
        {
          if (!InstallCrashReport(path(), kVersion).ok()) std::_Exit(1);
          DieHere(test.signal);
        },
        KilledBySignal(test.signal), test.name);
    const std::string report = Report();
    EXPECT_THAT(report, ContainsRegex("\\*\\*\\* tetradd 1.2.3 \\(abcdef, GNU 99\\), process "
                                      "[0-9]+, up [0-9]+ ms"));
    EXPECT_THAT(report, HasSubstr(std::string("*** ") + test.name + " received"));
    EXPECT_THAT(report, ContainsRegex("crash_report_test\\+0x[0-9a-f]+"));
    EXPECT_THAT(report, HasSubstr("DieHere"));
  }
}

TEST_F(CrashReportTest, AFailedCheckIsPartOfTheReport) {
  EXPECT_EXIT(
      {
        if (!InstallCrashReport(path(), kVersion).ok()) std::_Exit(1);
        TETRAD_CHECK(1 + 1 == 3);
      },
      KilledBySignal(SIGABRT), "check failed: 1 \\+ 1 == 3");
  EXPECT_THAT(Report(), HasSubstr("check failed: 1 + 1 == 3\n"));
}

TEST_F(CrashReportTest, WithoutAFileStandardErrorHasIt) {
  EXPECT_EXIT(
      {
        if (!InstallCrashReport("", kVersion).ok()) std::_Exit(1);
        DieHere(SIGSEGV);
      },
      KilledBySignal(SIGSEGV), "tetradd 1.2.3(.|\n)*SIGSEGV");
}

TEST_F(CrashReportTest, FilesThatCannotBeAreRefused) {
  const absl::Status missing = InstallCrashReport(folder_ + "/none/report", kVersion);
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("crash_report: " + folder_ + "/none"));
  EXPECT_EQ(InstallCrashReport(folder_, kVersion).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_EQ(::mkfifo((folder_ + "/fifo").c_str(), 0600), 0);
  EXPECT_EQ(InstallCrashReport(folder_ + "/fifo", kVersion).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(InstallCrashReport("/dev/null", kVersion).code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace tetrad
