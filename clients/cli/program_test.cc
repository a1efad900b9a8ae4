// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "clients/cli/commands.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/fake_daemon.h"
#include "kernels/nvfp4.h"

namespace tetrad::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct Ran {
  int code = -1;
  std::string out, err;
  std::vector<nlohmann::json> lines() const {
    std::vector<nlohmann::json> parsed;
    for (const auto& line : absl::StrSplit(out, '\n', absl::SkipEmpty())) {
      parsed.push_back(nlohmann::json::parse(line));
    }
    return parsed;
  }
};

Ran RunLine(const std::string& line, const std::stop_token& cancel = {}) {
  std::ostringstream out, err;
  Ran ran;
  ran.code = Main(absl::StrSplit(line, ' ', absl::SkipEmpty()), {out, err}, cancel);
  ran.out = out.str();
  ran.err = err.str();
  return ran;
}

class ProgramTest : public ::testing::Test {
 protected:
  Ran OnDaemon(const std::string& line) {
    return RunLine(absl::StrCat(line, " -e ", daemon_.endpoint()));
  }
  // Weights of two groups, n=2 and k=32, codes all 1.0, scales 1 and 2, and
  // alpha 1 and 3.
  void UploadWeights() {
    auto client = Client::Connect(daemon_.endpoint());
    v1::UploadHeader header;
    header.set_name("w");
    header.set_group_count(2);
    header.add_groups()->set_n(2);
    header.mutable_groups(0)->set_k(32);
    header.add_alpha(1);
    header.add_alpha(3);
    std::vector<uint8_t> scales(8, EncodeUe4m3(1));
    std::fill(scales.begin() + 4, scales.end(), EncodeUe4m3(2));
    ASSERT_TRUE((*client)->Upload(header, std::vector<uint8_t>(64, 0x22), scales).ok());
  }
  FakeDaemon daemon_;
};

TEST_F(ProgramTest, StatusAsTextAndJson) {
  const Ran text = OnDaemon("status");
  EXPECT_EQ(text.code, kExitOk);
  EXPECT_EQ(text.err, "");
  for (const char* part :
       {"serving", "fake-0", "reference", "1.0 MiB", "64.0 MiB, 16.0 MiB of it free in 2 chunks",
        "3, 1 in their grace time", "7, 1.0 MiB"}) {
    EXPECT_THAT(text.out, HasSubstr(part));
  }
  const Ran json = OnDaemon("status --json");
  ASSERT_EQ(json.lines().size(), 1u);
  EXPECT_EQ(json.lines()[0]["devices"][0]["uuid"], "fake-0");
}

TEST_F(ProgramTest, WeightsCommands) {
  EXPECT_EQ(OnDaemon("weights list").out, "the daemon holds no weights\n");
  UploadWeights();
  const Ran list = OnDaemon("weights list");
  EXPECT_THAT(list.out, HasSubstr("2 x 2 x 32"));
  EXPECT_THAT(list.out, HasSubstr("sealed"));
  EXPECT_EQ(OnDaemon("--json weights list").lines()[0]["weights"][0]["name"], "w");
  EXPECT_THAT(OnDaemon("weights seal w 1").out, HasSubstr("sealed"));
  EXPECT_EQ(OnDaemon("weights seal w 1 --json").lines()[0]["sealed"], true);
  const Ran unknown = OnDaemon("weights seal w 2");
  EXPECT_EQ(unknown.code, kExitDaemon);
  EXPECT_THAT(unknown.err, HasSubstr("NOT_FOUND"));
  EXPECT_EQ(OnDaemon("weights drop w").out, "dropped 1 version of w\n");
  const Ran again = OnDaemon("weights drop w --json");
  EXPECT_EQ(again.code, kExitDaemon);
  EXPECT_EQ(again.lines()[0]["error"]["code"], "NOT_FOUND");
  const Ran load = OnDaemon("weights load q -d dir -p e.{expert}");
  EXPECT_EQ(load.code, kExitOk);
  EXPECT_THAT(load.out, HasSubstr("note: pattern e.{expert}"));
  EXPECT_EQ(OnDaemon("weights load q -d absent -p e").code, kExitDaemon);
}

TEST_F(ProgramTest, AdminCommands) {
  EXPECT_EQ(OnDaemon("admin drain").out,
            "draining: takes requests for 5 s, then ends within 25 s\n");
  EXPECT_EQ(OnDaemon("admin drain --json").lines()[0]["drain_seconds"], 25);
  EXPECT_EQ(OnDaemon("admin log-level debug").out, "log level debug, it was info\n");
  EXPECT_EQ(OnDaemon("admin log-level error --json").lines()[0]["previous"], "debug");
  EXPECT_EQ(OnDaemon("admin end-lease lease-1").out, "ended lease lease-1 of token:someone\n");
  EXPECT_EQ(OnDaemon("admin end-lease lease-1 --json").lines()[0]["client"], "token:someone");
  const Ran unknown = OnDaemon("admin end-lease lease-2");
  EXPECT_EQ(unknown.code, kExitDaemon);
  EXPECT_THAT(unknown.err, HasSubstr("NOT_FOUND"));
}

TEST_F(ProgramTest, TokenAndTraceGoWithEveryCall) {
  const std::string file = ::testing::TempDir() + "tetrad-program-token";
  std::ofstream(file) << "s3cret.\n";
  setenv("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", 1);
  EXPECT_EQ(OnDaemon("status --token-file " + file).code, kExitOk);
  unsetenv("TRACEPARENT");
  EXPECT_EQ(daemon_.last_metadata("authorization"), "Bearer s3cret.");
  EXPECT_EQ(daemon_.last_metadata("traceparent"),
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  EXPECT_EQ(OnDaemon("status").code, kExitOk);
  EXPECT_EQ(daemon_.last_metadata("authorization"), "");
  EXPECT_EQ(daemon_.last_metadata("traceparent"), "");

  std::ofstream(file) << "two words";
  const Ran malformed = OnDaemon("status --token-file " + file);
  EXPECT_EQ(malformed.code, kExitDaemon);
  EXPECT_THAT(malformed.err, HasSubstr(file));
  EXPECT_THAT(malformed.err, Not(HasSubstr("two words")));
  std::filesystem::remove(file);
  EXPECT_EQ(OnDaemon("status --token-file " + file).code, kExitDaemon);
  EXPECT_EQ(RunLine("status -e 192.0.2.1:1 --tls-ca /nonexistent").code, kExitDaemon);
}

TEST_F(ProgramTest, PlanShowsAndReleases) {
  UploadWeights();
  const Ran plan = OnDaemon("plan -w w --m 3,4");
  EXPECT_EQ(plan.code, kExitOk) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("because it is fake"));
  const auto json = OnDaemon("plan -w w --m 3,4 --json").lines()[0];
  EXPECT_EQ(json["info"]["kernel"], "fake.reference");
  EXPECT_EQ(json["plan"], "");
  EXPECT_EQ(daemon_.plans_held(), 0);
}

TEST_F(ProgramTest, RunMeasuresEveryKindOfSignature) {
  UploadWeights();
  for (const char* options :
       {"--m 3,0", "--m 1x2 --a fp16 --out fp32 --row-scale", "--capacity counts:4 --a bf16",
        "--capacity offsets:9 --m 2,3", "--m 2x2 --scales blocked --layout column --stride 5"}) {
    const Ran ran = OnDaemon(absl::StrCat("run -w w -n 3 --json ", options));
    ASSERT_EQ(ran.code, kExitOk) << options << ran.err;
    const auto json = ran.lines()[0];
    EXPECT_EQ(json["repeats"], 3);
    EXPECT_EQ(json["share"], 0.25);
    EXPECT_EQ(json["timings_us"]["device"]["median"], 8);
    EXPECT_GT(json["timings_us"]["round_trip"]["min"], 0);
  }
  EXPECT_EQ(daemon_.executions(), 5 * 6);
  const Ran exact = OnDaemon("run -w w --m 1,1");
  EXPECT_THAT(exact.out, HasSubstr("floor 2.000 us, share 0.250"));
  EXPECT_THAT(exact.out, Not(HasSubstr("full capacity")));
  EXPECT_THAT(OnDaemon("run -w w --capacity counts:4").out, HasSubstr("of the full capacity"));
  const Ran wrong = OnDaemon("run -w w --capacity counts:4 --m 1,2,3");
  EXPECT_EQ(wrong.code, kExitDaemon);
  EXPECT_THAT(wrong.err, HasSubstr("--m has 3 groups"));
  const Ran large = OnDaemon("run -w w --capacity offsets:2000000000");
  EXPECT_EQ(large.code, kExitDaemon);
  EXPECT_THAT(large.err, HasSubstr("max_inline_bytes"));
  EXPECT_EQ(daemon_.plans_held(), 0);
}

TEST_F(ProgramTest, VerifyRandomPrintsALineASeed) {
  const Ran ran = OnDaemon("verify -s random:10:4 --json");
  ASSERT_EQ(ran.code, kExitOk) << ran.out << ran.err;
  const auto lines = ran.lines();
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0]["shape"], "random:10:1");
  EXPECT_EQ(lines[3]["shape"], "random:13:1");
  for (const char* key :
       {"kernel", "device_us", "floor_us", "share", "check", "worst", "compared"}) {
    EXPECT_TRUE(lines[0].contains(key)) << key;
  }
  EXPECT_EQ(lines[0]["check"], "bit-equal, within bound");
  EXPECT_EQ(lines[4]["summary"]["verified"], 4);
  EXPECT_EQ(lines[4]["summary"]["failed"], 0);
  EXPECT_THAT(daemon_.weights(), IsEmpty());

  const Ran text = OnDaemon("verify -s random:10:4");
  EXPECT_THAT(text.out, HasSubstr("4 of 4 verified"));
  EXPECT_THAT(text.out, Not(HasSubstr("random:10:1")));
  EXPECT_THAT(OnDaemon("verify -s random:10:1").out, HasSubstr("random:10:1"));
}

TEST(ProgramFailureTest, AWrongDaemonGivesOneAndACommandToRepeat) {
  FakeDaemon daemon(Fault::kLastGroupDropped);
  const Ran ran = RunLine(absl::StrCat("verify -s random:1:3 -e ", daemon.endpoint()));
  EXPECT_EQ(ran.code, kExitVerificationFailed);
  EXPECT_THAT(ran.out, HasSubstr("reproduce: tetradctl verify --shapes random:"));
  EXPECT_THAT(ran.out, HasSubstr("FAILED"));
  const Ran json = RunLine(absl::StrCat("verify --json -s random:1:3 -e ", daemon.endpoint()));
  EXPECT_EQ(json.code, kExitVerificationFailed);
  EXPECT_GT(json.lines().back()["summary"]["failed"], 0);
}

TEST(ProgramFailureTest, ExitCodesAreAsDocumented) {
  EXPECT_EQ(RunLine("--help").code, kExitOk);
  EXPECT_EQ(RunLine("frobnicate").code, kExitUsage);
  EXPECT_EQ(RunLine("status -e nonsense").code, kExitUsage);
  EXPECT_EQ(RunLine("status -e unix:/nonexistent/s").code, kExitDaemon);
  FakeDaemon draining(Fault::kDraining);
  EXPECT_EQ(RunLine(absl::StrCat("verify -s contest-tests -e ", draining.endpoint())).code,
            kExitDaemon);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(RunLine(absl::StrCat("status -e ", draining.endpoint()), stop.get_token()).code,
            kExitInterrupted);
  const Ran usage = RunLine("plan --json");
  EXPECT_EQ(usage.lines()[0]["error"]["code"], "INVALID_ARGUMENT");
}

TEST_F(ProgramTest, ResultsThatCannotBeWrittenAreAFailure) {
  std::ofstream full("/dev/full");
  std::ostringstream err;
  EXPECT_EQ(Main({"status", "-e", daemon_.endpoint()}, {full, err}, {}), kExitDaemon);
  EXPECT_THAT(err.str(), HasSubstr("standard output could not be written"));
  std::ofstream refused("/dev/full");
  EXPECT_EQ(Main({"frob", "--json"}, {refused, err}, {}), kExitUsage);
}

class VerifyWeightsTest : public ProgramTest {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/tetrad-program-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
    UploadWeights();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Expected values of the weights, the last one times `factor`.
  Ran Verify(float factor) {
    std::vector<float> values(64, 1);
    values.resize(128, 6);
    values.back() *= factor;
    const std::string header = R"({"all":{"dtype":"F32","shape":[2,2,32],"data_offsets":[0,512]}})";
    const uint64_t length = header.size();
    std::ofstream file(folder_ + "/f", std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), sizeof(length));
    file << header;
    file.write(reinterpret_cast<const char*>(values.data()), 512);
    file.close();
    return OnDaemon(
        absl::StrCat("verify --json -s weights:w --tensor-pattern all --expected ", folder_, "/f"));
  }
  std::string folder_;
};

TEST_F(VerifyWeightsTest, EqualNearAndWrongValues) {
  const Ran equal = Verify(1);
  EXPECT_EQ(equal.code, kExitOk) << equal.out << equal.err;
  EXPECT_EQ(equal.lines()[0]["check"], "bit-equal");
  EXPECT_EQ(equal.lines()[0]["compared"], 128);
  EXPECT_EQ(Verify(1 + 0x1p-23f).lines()[0]["check"], "within bound");
  const Ran wrong = Verify(1 + 0x1p-20f);
  EXPECT_EQ(wrong.code, kExitVerificationFailed);
  EXPECT_THAT(std::string(wrong.lines()[0]["failure"]), HasSubstr("group 1 row 1 k 31"));
  EXPECT_EQ(Verify(-1).code, kExitVerificationFailed);
}

TEST_F(VerifyWeightsTest, MissingWeightsOrFilesAreErrors) {
  const Ran none = OnDaemon("verify -s weights:none --expected f --tensor-pattern a");
  EXPECT_EQ(none.code, kExitDaemon);
  EXPECT_EQ(none.out, "");
  EXPECT_EQ(OnDaemon("verify -s weights:w@9 --expected f --tensor-pattern a").code, kExitDaemon);
  const Ran no_file = OnDaemon("verify -s weights:w --expected /nonexistent --tensor-pattern a");
  EXPECT_EQ(no_file.code, kExitDaemon);
  EXPECT_THAT(no_file.err, HasSubstr("/nonexistent"));
}

}  // namespace
}  // namespace tetrad::cli
