// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// A daemon that dies tells why, and dies of what killed it.
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include "tests/e2e/daemon.h"

namespace tetrad::e2e {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr int kUnavailable = 69;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Death {
  int signal;
  std::string name;
};
void PrintTo(const Death& death, std::ostream* out) { *out << death.name; }

class CrashTest : public ::testing::TestWithParam<Death> {};

TEST_P(CrashTest, TheReportIsWrittenAndTheSignalKills) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/report";
  Daemon daemon({"--crash-report", path});
  v1::GetStatusResponse status;
  grpc::ClientContext context;
  ASSERT_TRUE(Stubs(daemon).status->GetStatus(&context, {}, &status).ok());
  EXPECT_EQ(ReadFile(path), "");
  struct stat info;
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);

  daemon.Signal(GetParam().signal);
  EXPECT_EQ(daemon.Wait(absl::Seconds(30)), 128 + GetParam().signal);
  const std::string log = daemon.Log();
  for (const std::string& report : {ReadFile(path), log}) {
    EXPECT_THAT(report, HasSubstr("*** tetradd " + status.version() + " ("));
    EXPECT_THAT(report, ContainsRegex("process [0-9]+, up [0-9]+ ms"));
    EXPECT_THAT(report, HasSubstr("*** " + GetParam().name + " received"));
    EXPECT_THAT(report, ContainsRegex("#[0-9]+ /[^\n]*/tetradd\\+0x[0-9a-f]+\n"));
    EXPECT_THAT(report, ContainsRegex("@ +0x[0-9a-f]+ [^\n]*main"));
  }
}

INSTANTIATE_TEST_SUITE_P(Signals, CrashTest,
                         ::testing::Values(Death{SIGSEGV, "SIGSEGV"}, Death{SIGBUS, "SIGBUS"},
                                           Death{SIGILL, "SIGILL"}, Death{SIGFPE, "SIGFPE"},
                                           Death{SIGABRT, "SIGABRT"}),
                         ::testing::PrintToStringParamName());

TEST(CrashReportTest, ALaterReportIsAppended) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/report";
  Daemon daemon({"--crash-report", path});
  daemon.Signal(SIGSEGV);
  EXPECT_EQ(daemon.Wait(absl::Seconds(30)), 128 + SIGSEGV);
  const std::string first = ReadFile(path);
  daemon.Restart();
  daemon.Signal(SIGABRT);
  EXPECT_EQ(daemon.Wait(absl::Seconds(30)), 128 + SIGABRT);
  const std::string both = ReadFile(path);
  EXPECT_EQ(both.substr(0, first.size()), first);
  EXPECT_THAT(both.substr(first.size()), HasSubstr("*** SIGABRT received"));
}

TEST(CrashReportTest, AStopIsNoCrashAndABadPathIsRefused) {
  const TemporaryFolder folder;
  Daemon daemon({"--crash-report", folder.path() + "/report"});
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(absl::Seconds(30)), 0);
  EXPECT_EQ(ReadFile(folder.path() + "/report"), "");
  const ProcessResult refused =
      RunTetradd({"--crash-report", folder.path() + "/none/report", "--http", "off"});
  EXPECT_EQ(refused.exit_code, kUnavailable);
  EXPECT_THAT(refused.output, HasSubstr("code=NOT_FOUND"));
  EXPECT_THAT(refused.output, HasSubstr("crash_report: " + folder.path() + "/none/report"));
}

}  // namespace
}  // namespace tetrad::e2e
