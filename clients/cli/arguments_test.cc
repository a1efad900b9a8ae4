// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/arguments.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tetrad::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<Invocation> Parse(const std::string& line) {
  return ParseArguments(absl::StrSplit(line, ' ', absl::SkipEmpty()));
}

template <typename T>
T ParseAs(const std::string& line) {
  auto invocation = Parse(line);
  EXPECT_TRUE(invocation.ok()) << line << ": " << invocation.status();
  if (!invocation.ok()) return {};
  EXPECT_TRUE(std::holds_alternative<T>(invocation->command)) << line;
  return std::get<T>(invocation->command);
}

class ArgumentsTest : public ::testing::Test {
 protected:
  void SetUp() override { Clear(); }
  void TearDown() override { Clear(); }
  static void Clear() {
    for (const char* variable :
         {"TETRAD_ENDPOINT", "TETRADCTL_TLS_CA", "TETRADCTL_TLS_CERT", "TETRADCTL_TLS_KEY",
          "TETRADCTL_TLS_SERVER_NAME", "TETRADCTL_TOKEN", "TETRADCTL_TOKEN_FILE", "TRACEPARENT"}) {
      unsetenv(variable);
    }
  }
};

TEST_F(ArgumentsTest, GlobalOptionsStandAnywhere) {
  EXPECT_EQ(Parse("status")->global.endpoint, kDefaultEndpoint);
  for (const char* line :
       {"--endpoint h:1 --json --timeout 2.5 status", "status --endpoint h:1 --json --timeout 2.5",
        "weights --json list -e h:1 --timeout 2.5"}) {
    const auto invocation = Parse(line);
    ASSERT_TRUE(invocation.ok()) << invocation.status();
    EXPECT_EQ(invocation->global.endpoint, "h:1");
    EXPECT_TRUE(invocation->global.json);
    EXPECT_EQ(invocation->global.timeout, absl::Seconds(2.5));
  }
}

TEST_F(ArgumentsTest, EndpointComesFromTheEnvironmentUnlessGiven) {
  setenv("TETRAD_ENDPOINT", "env:1", 1);
  EXPECT_EQ(Parse("status")->global.endpoint, "env:1");
  EXPECT_EQ(Parse("status -e flag:2")->global.endpoint, "flag:2");
}

TEST_F(ArgumentsTest, TlsIsWantedByAnyOfItsOptions) {
  EXPECT_FALSE(Parse("status")->global.tls.has_value());
  const auto all = Parse("status --tls-ca a --tls-cert c --tls-key k --tls-server-name n");
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_TRUE(all->global.tls.has_value());
  EXPECT_EQ(all->global.tls->root_certificates_file, "a");
  EXPECT_EQ(all->global.tls->certificate_file, "c");
  EXPECT_EQ(all->global.tls->key_file, "k");
  EXPECT_EQ(all->global.tls->server_name, "n");
  EXPECT_TRUE(Parse("status --tls-server-name n")->global.tls.has_value());
  for (const char* half : {"status --tls-cert c", "status --tls-key k --tls-ca a"}) {
    EXPECT_EQ(Parse(half).status().message(), "--tls-cert and --tls-key belong together");
  }
  setenv("TETRADCTL_TLS_CA", "env", 1);
  EXPECT_EQ(Parse("status")->global.tls->root_certificates_file, "env");
  EXPECT_EQ(Parse("status --tls-ca flag")->global.tls->root_certificates_file, "flag");
}

TEST_F(ArgumentsTest, TokensComeFromFilesAndTheEnvironmentOnly) {
  EXPECT_EQ(Parse("status --token-file f")->global.token_file, "f");
  EXPECT_FALSE(Parse("status --token secret").ok());
  setenv("TETRADCTL_TOKEN", "secret", 1);
  EXPECT_EQ(Parse("status")->global.token, "secret");
  const absl::Status both = Parse("status --token-file f").status();
  EXPECT_THAT(std::string(both.message()), HasSubstr("exclude each other"));
  EXPECT_EQ(both.message().find("secret"), absl::string_view::npos);
  unsetenv("TETRADCTL_TOKEN");
  setenv("TETRADCTL_TOKEN_FILE", "env", 1);
  EXPECT_EQ(Parse("status")->global.token_file, "env");
}

TEST_F(ArgumentsTest, TheTraceComesFromTheEnvironment) {
  EXPECT_EQ(Parse("status")->global.traceparent, "");
  setenv("TRACEPARENT", "00-a", 1);
  EXPECT_EQ(Parse("status")->global.traceparent, "00-a");
}

TEST_F(ArgumentsTest, AdminCommands) {
  ParseAs<DrainCommand>("admin drain");
  EXPECT_EQ(ParseAs<LogLevelCommand>("admin log-level debug").level, "debug");
  EXPECT_EQ(ParseAs<EndLeaseCommand>("admin end-lease l-1").lease, "l-1");
  for (const char* line : {"admin", "admin drain now", "admin log-level", "admin log-level loud",
                           "admin end-lease", "admin frob"}) {
    EXPECT_FALSE(Parse(line).ok()) << line;
  }
}

TEST_F(ArgumentsTest, WeightsCommands) {
  ParseAs<StatusCommand>("status");
  ParseAs<WeightsListCommand>("weights list");
  EXPECT_EQ(ParseAs<WeightsDropCommand>("weights drop w@3").weights, "w@3");
  EXPECT_EQ(ParseAs<WeightsSealCommand>("weights seal w 7").name, "w");
  EXPECT_EQ(ParseAs<WeightsSealCommand>("weights seal w 7").version, 7);
  const auto load = ParseAs<WeightsLoadCommand>(
      "weights load up --directory qwen --pattern model.{expert}.up --dialect modelopt");
  EXPECT_EQ(load.request.name(), "up");
  EXPECT_EQ(load.request.directory(), "qwen");
  EXPECT_EQ(load.request.pattern(), "model.{expert}.up");
  EXPECT_EQ(load.request.dialect(), v1::CHECKPOINT_DIALECT_MODELOPT);
  EXPECT_EQ(ParseAs<WeightsLoadCommand>("weights load w -d . -p x").request.dialect(),
            v1::CHECKPOINT_DIALECT_UNSPECIFIED);
  EXPECT_FALSE(load.request.ignore_input_scales());
  EXPECT_TRUE(ParseAs<WeightsLoadCommand>("weights load w -d . -p x --ignore-input-scales")
                  .request.ignore_input_scales());
}

TEST_F(ArgumentsTest, SignatureDefaults) {
  const v1::Signature s = ParseAs<PlanCommand>("plan --weights w --m 1,2").signature;
  EXPECT_EQ(s.weights(), "w");
  EXPECT_EQ(s.activation_type(), v1::ACTIVATION_TYPE_NVFP4);
  EXPECT_EQ(s.output_type(), v1::OUTPUT_TYPE_FP16);
  EXPECT_EQ(s.activation_scale_layout(), v1::SCALE_LAYOUT_UNSPECIFIED);
  EXPECT_EQ(s.output_layout(), v1::OUTPUT_LAYOUT_ROW_MAJOR);
  EXPECT_EQ(s.output_stride(), 0);
  EXPECT_EQ(s.group_form(), v1::GROUP_FORM_UNSPECIFIED);
  EXPECT_THAT(s.exact().m(), ElementsAre(1, 2));
  EXPECT_FALSE(s.row_scale());
}

TEST_F(ArgumentsTest, SignatureOptions) {
  const v1::Signature s = ParseAs<PlanCommand>(
                              "plan -w w@2 --m 0,3x2 --a nvfp4 --out fp32 --scales blocked "
                              "--layout column --stride 77 --form stacked --row-scale")
                              .signature;
  EXPECT_EQ(s.output_type(), v1::OUTPUT_TYPE_FP32);
  EXPECT_EQ(s.activation_scale_layout(), v1::SCALE_LAYOUT_BLOCKED);
  EXPECT_EQ(s.output_layout(), v1::OUTPUT_LAYOUT_COLUMN_MAJOR);
  EXPECT_EQ(s.output_stride(), 77);
  EXPECT_EQ(s.group_form(), v1::GROUP_FORM_STACKED);
  EXPECT_THAT(s.exact().m(), ElementsAre(0, 3, 3));
  EXPECT_TRUE(s.row_scale());
}

TEST_F(ArgumentsTest, CapacityImpliesAStackAndRunTakesLiveRows) {
  const auto plan = ParseAs<PlanCommand>("plan -w w --capacity counts:64");
  EXPECT_EQ(plan.signature.group_form(), v1::GROUP_FORM_STACKED);
  EXPECT_EQ(plan.signature.capacity().m_source(), v1::M_SOURCE_COUNTS);
  EXPECT_EQ(plan.signature.capacity().rows(), 64);
  const auto run = ParseAs<RunCommand>(
      "run -w w --capacity offsets:9 --m 4,5 -n 7 --warmups 0 --seed 3 --a bf16");
  EXPECT_EQ(run.signature.capacity().m_source(), v1::M_SOURCE_OFFSETS);
  EXPECT_EQ(run.signature.activation_type(), v1::ACTIVATION_TYPE_BF16);
  EXPECT_THAT(run.live_rows, ElementsAre(4, 5));
  EXPECT_EQ(run.repeats, 7);
  EXPECT_EQ(run.warmups, 0);
  EXPECT_EQ(run.seed, 3u);
}

TEST_F(ArgumentsTest, BenchIsAlwaysBoundedInTimeAndCount) {
  const auto plain = ParseAs<BenchCommand>("bench --shape S1");
  EXPECT_EQ(plain.shape, "S1");
  EXPECT_EQ(plain.duration, absl::Seconds(10));
  EXPECT_EQ(plain.requests, kMaxBenchRequests);
  EXPECT_EQ(plain.in_flight, 1);
  EXPECT_TRUE(plain.plan);
  const auto counted = ParseAs<BenchCommand>("bench --shape S1 -n 7");
  EXPECT_EQ(counted.requests, 7);
  EXPECT_EQ(counted.duration, absl::Hours(1));
  const auto both = ParseAs<BenchCommand>(
      "bench -w w --capacity counts:4 --m 1,2 --a bf16 -n 7 --seconds 0.5 -c 8 --no-plan");
  EXPECT_EQ(both.signature.weights(), "w");
  EXPECT_EQ(both.signature.activation_type(), v1::ACTIVATION_TYPE_BF16);
  EXPECT_THAT(both.live_rows, ElementsAre(1, 2));
  EXPECT_EQ(both.requests, 7);
  EXPECT_EQ(both.duration, absl::Milliseconds(500));
  EXPECT_EQ(both.in_flight, 8);
  EXPECT_FALSE(both.plan);
}

TEST_F(ArgumentsTest, VerifyShapes) {
  const struct {
    const char* line;
    ShapeSet shapes;
    uint64_t seed;
    int64_t count;
  } kCases[] = {
      {"verify --shapes contest", ShapeSet::kContest, 1, 0},
      {"verify -s contest-tests --seed 9", ShapeSet::kContestTests, 9, 0},
      {"verify -s decode", ShapeSet::kDecode, 1, 0},
      {"verify -s prefill", ShapeSet::kPrefill, 1, 0},
      {"verify -s random:0:1000 -v", ShapeSet::kRandom, 0, 1000},
      {"verify -s random:18446744073709551615:1", ShapeSet::kRandom, ~uint64_t{0}, 1},
  };
  for (const auto& c : kCases) {
    const auto verify = ParseAs<VerifyCommand>(c.line);
    EXPECT_EQ(verify.shapes, c.shapes) << c.line;
    EXPECT_EQ(verify.seed, c.seed) << c.line;
    EXPECT_EQ(verify.count, c.count) << c.line;
  }
  const auto of_weights = ParseAs<VerifyCommand>(
      "verify -s weights:w@2 --expected f.safetensors --tensor-pattern e.{expert}");
  EXPECT_EQ(of_weights.shapes, ShapeSet::kWeights);
  EXPECT_EQ(of_weights.weights, "w@2");
  EXPECT_EQ(of_weights.expected, "f.safetensors");
  EXPECT_EQ(of_weights.pattern, "e.{expert}");
}

TEST_F(ArgumentsTest, RefusalsNameTheOption) {
  const struct {
    const char* line;
    const char* message;
  } kCases[] = {
      {"", "a subcommand is required: status, weights, plan, run, verify, bench or admin"},
      {"--odd", "a subcommand is required"},
      {"frob",
       "unknown subcommand 'frob'; expected status, weights, plan, run, verify, bench or admin"},
      {"--json frob -x", "unknown subcommand 'frob'"},
      {"weights", "a subcommand is required: load, list, drop or seal"},
      {"weights upload f", "unknown subcommand 'upload'; expected load, list, drop or seal"},
      {"weights load w --pattern p", "--directory"},
      {"weights load w -d d -p p --dialect odd", "--dialect"},
      {"plan --m 1", "--weights"},
      {"plan -w w", "--m or --capacity"},
      {"plan -w w --m 1,,2", "--m '1,,2'"},
      {"plan -w w --m -1", "--m"},
      {"plan -w w --m 2147483648", "--m '2147483648'"},
      {"plan -w w --m 1x9999999", "--m"},
      {"plan -w w --m 4x", "--m '4x'"},
      {"plan -w w --m 1 --a fp8", "--a"},
      {"plan -w w --m 1 --stride -5", "--stride"},
      {"plan -w w --capacity counts", "--capacity 'counts'"},
      {"plan -w w --capacity rows:5", "offsets:ROWS"},
      {"plan -w w --capacity counts:0", "--capacity"},
      {"plan -w w --capacity counts:5 --m 1", "leave it out"},
      {"run -w w --m 1 --repeats 0", "--repeats"},
      {"weights seal w", "version"},
      {"weights seal w 0", "version"},
      {"bench", "--weights or --shape is required"},
      {"bench -w w", "--m or --capacity"},
      {"bench --shape S9", "--shape 'S9' must be one of"},
      {"bench --shape S1 --m 4", "--shape and --m"},
      {"bench --shape S1 --row-scale", "--shape and --row-scale"},
      {"bench --shape S1 -c 0", "--in-flight"},
      {"bench --shape S1 -c 1025", "--in-flight"},
      {"bench --shape S1 --seconds 0", "--seconds"},
      {"bench --shape S1 --seconds 3601", "--seconds"},
      {"bench --shape S1 --requests 0", "--requests"},
      {"bench --shape S1 --requests 1000001", "--requests"},
      {"verify", "--shapes"},
      {"verify -s nothing", "random:SEED:COUNT"},
      {"verify -s random:1", "COUNT >= 1"},
      {"verify -s random:x:1", "random:SEED:COUNT"},
      {"verify -s random:1:0", "COUNT >= 1"},
      {"verify -s random:1:1 --seed 4", "--seed"},
      {"verify -s weights:", "weights:NAME"},
      {"verify -s weights:w", "--expected"},
      {"verify -s contest --expected f", "--expected"},
      {"status --timeout 0", "--timeout: must be positive and finite, not 0"},
      {"status --timeout -1", "--timeout: must be positive"},
      {"status --timeout nan", "--timeout: must be positive"},
      {"status --timeout inf", "--timeout: must be positive"},
      {"status --timeout 5s", "--timeout: must be positive"},
      {"status surplus", "surplus"},
  };
  for (const auto& c : kCases) {
    const auto invocation = Parse(c.line);
    ASSERT_FALSE(invocation.ok()) << c.line;
    EXPECT_EQ(invocation.status().code(), absl::StatusCode::kInvalidArgument) << c.line;
    EXPECT_THAT(std::string(invocation.status().message()), HasSubstr(c.message)) << c.line;
  }
}

TEST_F(ArgumentsTest, HelpNamesEveryCommand) {
  const std::string help = ParseAs<HelpText>("--help").text;
  for (const char* command : {"status", "weights", "plan", "run", "verify", "bench"}) {
    EXPECT_THAT(help, HasSubstr(command));
  }
  EXPECT_THAT(ParseAs<HelpText>("plan --help").text, HasSubstr("--capacity"));
  EXPECT_THAT(help, HasSubstr("Examples:\n  tetradctl status"));
  const std::string all = ParseAs<HelpText>("--help-all").text;
  for (const char* part : {"--capacity", "--pattern", "--dialect", "NAME@VERSION"}) {
    EXPECT_THAT(all, HasSubstr(part));
  }
  for (const char* line : {"plan --help", "weights --help", "weights load --help"}) {
    EXPECT_THAT(ParseAs<HelpText>(line).text,
                HasSubstr("(--endpoint, --json, --timeout, --tls-..., --token-file)"));
  }
  EXPECT_THAT(ParseAs<HelpText>("--version").text,
              ::testing::MatchesRegex("tetradctl [0-9.]+ \\([0-9a-z-]+, [^)]+\\)\n"));
}

}  // namespace
}  // namespace tetrad::cli
