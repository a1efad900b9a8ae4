// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "clients/cli/case_data.h"
#include "clients/cli/commands.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/fake_daemon.h"

namespace tetrad::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Ran {
  int code = -1;
  std::string out, err;
  nlohmann::json json() const { return nlohmann::json::parse(out, nullptr, false); }
};

Ran Bench(const FakeDaemon& daemon, const std::string& options,
          const std::stop_token& cancel = {}) {
  std::ostringstream out, err;
  Ran ran;
  ran.code = Main(absl::StrSplit(absl::StrCat("bench -e ", daemon.endpoint(), " ", options), ' ',
                                 absl::SkipEmpty()),
                  {out, err}, cancel);
  ran.out = out.str();
  ran.err = err.str();
  return ran;
}

// Weights "w" of three groups on the daemon, with values of every kind.
GroupedCase Register(const FakeDaemon& daemon) {
  GroupedCase c;
  c.groups = {{5, 24, 64}, {0, 24, 64}, {9, 24, 64}};
  const CaseData data(c, DataKind::kExact, 1, 1);
  const auto client = Client::Connect(daemon.endpoint());
  EXPECT_TRUE(client.ok());
  EXPECT_TRUE((*client)->Upload(ToUploadHeader(c, "w"), data.codes(), data.scales()).ok());
  return c;
}

TEST(BenchCommandTest, AShapeBringsItsOwnWeightsAndIsComparedWithTheReference) {
  FakeDaemon daemon;
  const Ran ran = Bench(daemon, "--shape T1 -n 6 -c 2 --warmups 1 --json");
  ASSERT_EQ(ran.code, kExitOk) << ran.err;
  const auto json = ran.json();
  EXPECT_EQ(json["requests"], 6);
  EXPECT_EQ(json["failed"], 0);
  EXPECT_EQ(json["in_flight"], 2);
  EXPECT_EQ(json["plan"], true);
  EXPECT_EQ(json["interrupted"], false);
  EXPECT_EQ(json["checked"],
            absl::StrCat(96 * 128 + 128 * 256, " elements bit-equal to the reference"));
  EXPECT_EQ(json["flops"], 2.0 * (96 * 128 * 256 + 128 * 256 * 512));
  EXPECT_EQ(json["reply_bytes"], 2 * (96 * 128 + 128 * 256));
  EXPECT_EQ(json["share"], 0.25);
  EXPECT_EQ(json["timings_us"]["device"]["p99"], 8);
  EXPECT_GT(json["timings_us"]["client"]["p50"], 0);
  EXPECT_LE(json["timings_us"]["client"]["p50"], json["timings_us"]["client"]["max"]);
  const double seconds = json["seconds"];
  EXPECT_DOUBLE_EQ(json["requests_per_second"], 6 / seconds);
  EXPECT_EQ(daemon.executions(), 1 + 2 + 6);
  EXPECT_THAT(daemon.weights(), IsEmpty());
  EXPECT_EQ(daemon.plans_held(), 0);
}

TEST(BenchCommandTest, WeightsOfTheDaemonInEveryKindOfSignature) {
  FakeDaemon daemon;
  Register(daemon);
  for (const char* options :
       {"--m 5,0,9", "--m 5,0,9 --no-plan", "--m 100,1,0 --a fp16 --out fp32",
        "--m 1x3 --a bf16 --out bf16 --row-scale", "--m 7x3 --layout column --scales blocked",
        "--m 7x3 --form stacked --layout column --stride 40", "--m 3x3 --stride 30",
        "--capacity counts:9 --m 2,0,9", "--capacity offsets:12 --m 2,0,9 --scales blocked"}) {
    const Ran ran = Bench(daemon, absl::StrCat("-w w -n 2 --warmups 0 --json ", options));
    ASSERT_EQ(ran.code, kExitOk) << options << ": " << ran.err;
    EXPECT_EQ(ran.json()["requests"], 2) << options;
  }
  EXPECT_EQ(daemon.plans_held(), 0);
  EXPECT_EQ(Bench(daemon, "-w w@1 --m 1,2,3 -n 1").code, kExitOk);
  const Ran text = Bench(daemon, "-w w --capacity counts:9 -n 3");
  for (const char* part : {"w@1 on fake.reference", "3 requests", "TFLOP/s", "total in daemon",
                           "share 0.250", "one-hot rows", "of the full capacity"}) {
    EXPECT_THAT(text.out, HasSubstr(part));
  }
}

TEST(BenchCommandTest, WrongResultsAreNotMeasured) {
  for (const Fault fault : {Fault::kWrongElement, Fault::kLastColumnDropped,
                            Fault::kLastGroupDropped, Fault::kShortReply}) {
    FakeDaemon daemon(fault);
    const Ran known = Bench(daemon, "--shape T1 -n 2");
    EXPECT_EQ(known.code, kExitVerificationFailed);
    EXPECT_EQ(known.out, "");
    EXPECT_THAT(known.err, HasSubstr("not measured"));
    EXPECT_THAT(daemon.weights(), IsEmpty());
    EXPECT_EQ(daemon.plans_held(), 0);
  }
}

TEST(BenchCommandTest, RepliesThatChangeAreWrong) {
  FakeDaemon daemon(Fault::kOtherBytesNextTime);
  const Ran ran = Bench(daemon, "--shape T1 -n 2 --warmups 1 --json");
  EXPECT_EQ(ran.code, kExitVerificationFailed);
  const auto json = ran.json();
  EXPECT_EQ(json["requests"], 0);
  EXPECT_EQ(json["failed"], 3);  // the warm-up's, too
  EXPECT_EQ(json["errors"][0]["code"], "DATA_LOSS");
  EXPECT_EQ(json["errors"][0]["count"], 3);
  EXPECT_TRUE(json["share"].is_null());
}

TEST(BenchCommandTest, ARefusalBeforeAnythingIsMeasuredIsAnError) {
  FakeDaemon failing(Fault::kExecuteFails);
  const Ran ran = Bench(failing, "--shape T1 -n 2");
  EXPECT_EQ(ran.code, kExitDaemon);
  EXPECT_THAT(ran.err, HasSubstr("INTERNAL: our bug"));
  EXPECT_THAT(failing.weights(), IsEmpty());
  FakeDaemon daemon;
  Register(daemon);
  EXPECT_THAT(Bench(daemon, "-w w --m 1,2").err, HasSubstr("--m has 2 groups"));
  EXPECT_EQ(Bench(daemon, "-w none --m 1").code, kExitDaemon);
}

TEST(BenchCommandTest, AnInterruptEndsItWithWhatWasMeasured) {
  FakeDaemon daemon;
  std::stop_source stop;
  const std::jthread interrupter([&] {
    while (daemon.executions() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    stop.request_stop();
  });
  const Ran ran =
      Bench(daemon, "--shape T1 --seconds 3600 --warmups 0 -c 2 --json", stop.get_token());
  EXPECT_EQ(ran.code, kExitInterrupted) << ran.err;
  const auto json = ran.json();
  EXPECT_EQ(json["interrupted"], true);
  EXPECT_GT(json["requests"], 0);
  EXPECT_EQ(json["failed"], 0);
  EXPECT_THAT(daemon.weights(), IsEmpty());
  EXPECT_EQ(daemon.plans_held(), 0);
}

TEST(BenchCommandTest, AnInterruptBeforeThatIsNoResult) {
  FakeDaemon daemon(Fault::kHangs);
  std::stop_source stop;
  const std::jthread interrupter([&] {
    while (daemon.plans_held() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    stop.request_stop();
  });
  const Ran ran = Bench(daemon, "--shape T1", stop.get_token());
  EXPECT_EQ(ran.code, kExitInterrupted);
  EXPECT_EQ(ran.out, "");
  EXPECT_THAT(daemon.weights(), IsEmpty());
}

}  // namespace
}  // namespace tetrad::cli
