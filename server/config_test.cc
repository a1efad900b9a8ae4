// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/config.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tetrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ConfigTest : public ::testing::Test {
 protected:
  std::string File(const std::string& text) {
    std::string path = ::testing::TempDir() + "config_test.toml";
    std::ofstream(path) << text;
    return path;
  }
  absl::StatusOr<LoadedConfig> Load(const std::vector<std::string>& arguments) {
    return LoadConfig(arguments, [this](const std::string& name) -> std::optional<std::string> {
      const auto found = environment_.find(name);
      if (found == environment_.end()) return std::nullopt;
      return found->second;
    });
  }
  std::string Error(const std::vector<std::string>& arguments) {
    const auto loaded = Load(arguments);
    if (loaded.ok()) return "no error";
    EXPECT_EQ(loaded.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(loaded.status().message());
  }
  std::map<std::string, std::string> environment_;
};

TEST_F(ConfigTest, LaterSourcesWin) {
  const std::string file = File("plan_capacity = 2\nqueue_depth = 2\nthreads = 2\n");
  environment_ = {{"TETRAD_QUEUE_DEPTH", "3"}, {"TETRAD_THREADS", "3"}};
  const auto loaded = Load({"--config", file, "--threads", "4"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.memory_bytes, 0);
  EXPECT_EQ(loaded->config.plan_capacity, 2);
  EXPECT_EQ(loaded->config.queue_depth, 3);
  EXPECT_EQ(loaded->config.threads, 4);
  EXPECT_EQ(loaded->sources.at("plan_capacity"), file + ":1");
  EXPECT_EQ(loaded->sources.at("queue_depth"), "TETRAD_QUEUE_DEPTH");
  EXPECT_EQ(loaded->sources.at("threads"), "--threads");
  EXPECT_FALSE(loaded->sources.contains("memory_bytes"));
}

TEST_F(ConfigTest, EveryTypeFromEverySource) {
  const std::string file = File(
      "listen = [\n  \"unix:/a\",\n  \"127.0.0.1:0\",\n]\n"
      "device = 'cpu'\ninsecure_listen = true\nmax_inline_bytes = 1_048_576\n");
  auto loaded = Load({"--config", file});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_THAT(loaded->config.listen, ElementsAre("unix:/a", "127.0.0.1:0"));
  EXPECT_EQ(loaded->config.device, "cpu");
  EXPECT_TRUE(loaded->config.insecure_listen);
  EXPECT_EQ(loaded->config.max_inline_bytes, 1 << 20);

  environment_ = {{"TETRAD_LISTEN", "unix:/b,localhost:1"}, {"TETRAD_INSECURE_LISTEN", "false"}};
  loaded = Load({"--config", file});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_THAT(loaded->config.listen, ElementsAre("unix:/b", "localhost:1"));
  EXPECT_FALSE(loaded->config.insecure_listen);

  loaded = Load({"--listen", "unix:/c", "--insecure-listen", "--listen=unix:/d"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_THAT(loaded->config.listen, ElementsAre("unix:/c", "unix:/d"));
  EXPECT_TRUE(loaded->config.insecure_listen);
}

TEST_F(ConfigTest, FileNamedByEnvironment) {
  environment_ = {{"TETRAD_CONFIG", File("threads = 7\n")}};
  const auto loaded = Load({});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.threads, 7);
}

TEST_F(ConfigTest, ForeignVariablesAreNotLookedAt) {
  environment_ = {{"TETRAD_SERVICE_HOST", "10.0.0.1"}, {"TETRAD_PORT", "tcp://10.0.0.1:1"}};
  EXPECT_TRUE(Load({}).ok());
}

TEST_F(ConfigTest, FileErrorsNameFileAndLine) {
  const struct {
    const char* text;
    const char* message;
  } kCases[] = {
      {"threads = 1\nthread = 2\n", ":2: unknown key 'thread'"},
      {"threads = 1\n\nthreads = 2\n", ":3: "},
      {"threads = \"2\"\n# \n", "no error"},  // a text that is a number is one
      {"threads = 2.5\n", ":1: threads: no option has a value of this type"},
      {"threads = [\"2\"]\n", ":1: threads: has the wrong type"},
      {"device = 3\n", ":1: device: has the wrong type"},
      {"listen = [3]\n", ":1: listen: a list may hold texts only"},
      {"[threads]\n", ":1: threads: no option is a table"},
      {"\nplan_capacity = 0\n", ":2: plan_capacity: 0 is not in [1, 1048576]"},
      {"instruction_set = \"sse\"\n", "'sse' is none of auto, portable, avx2, avx512"},
      {"threads = \n", ":1: "},
      {"[threads\n", ":1: "},
  };
  for (const auto& test : kCases) {
    EXPECT_THAT(Error({"--config", File(test.text)}), HasSubstr(test.message)) << test.text;
  }
  EXPECT_THAT(Error({"--config", "/does/not/exist"}),
              HasSubstr("/does/not/exist: cannot be read: No such file"));
  EXPECT_THAT(Error({"--config", "/"}), HasSubstr("/: cannot be read: Is a directory"));
}

TEST_F(ConfigTest, FlagAndVariableErrorsNameTheirSource) {
  EXPECT_THAT(Error({"--thread", "2"}), HasSubstr("--thread"));
  EXPECT_THAT(Error({"stray"}), HasSubstr("stray"));
  EXPECT_THAT(Error({"--listen", "unix:/a", "stray"}), HasSubstr("stray"));
  EXPECT_THAT(Error({"--threads", "two"}), HasSubstr("--threads: 'two' is not a whole number"));
  EXPECT_THAT(Error({"--threads", "-1"}), HasSubstr("--threads: -1 is not in [0, 4096]"));
  EXPECT_THAT(Error({"--threads", "99999999999999999999"}), HasSubstr("is not a whole number"));
  environment_ = {{"TETRAD_INSECURE_LISTEN", "yes"}};
  EXPECT_THAT(Error({}), HasSubstr("TETRAD_INSECURE_LISTEN: 'yes' is neither true nor false"));
}

TEST_F(ConfigTest, PrintedConfigIsAConfigFile) {
  environment_ = {{"TETRAD_DEVICE", "cpu"}};
  auto loaded = Load({"--listen", "unix:/a \"b\"\\\n\x01", "--threads", "3", "--print-config"});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->action, ConfigAction::kPrintConfig);
  const std::string printed = PrintConfig(*loaded);
  EXPECT_THAT(printed, HasSubstr("threads = 3  # --threads\n"));
  EXPECT_THAT(printed, HasSubstr("device = \"cpu\"  # TETRAD_DEVICE\n"));
  EXPECT_THAT(printed, HasSubstr("queue_depth = 1024  # default\n"));
  environment_.clear();
  const auto again = Load({"--config", File(printed)});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->config.listen, loaded->config.listen);
  EXPECT_EQ(again->config.threads, 3);
}

// The printed file could not be read again.
TEST_F(ConfigTest, TextsAreUtf8WhereverTheyComeFrom) {
  EXPECT_THAT(Error({"--crash-report", "/\xFF"}),
              HasSubstr("--crash-report: '/\\xFF' is not UTF-8"));
  EXPECT_THAT(Error({"--listen", "unix:/a", "--listen", "unix:/\xC0\x80"}),
              HasSubstr("--listen: 'unix:/\\xC0\\x80' is not UTF-8"));
  environment_ = {{"TETRAD_LISTEN", "unix:/a,unix:/\xED\xA0\x80"}};
  EXPECT_THAT(Error({}), HasSubstr("is not UTF-8"));
  environment_ = {{"TETRAD_LISTEN", "unix:/\u00e9"}};
  EXPECT_EQ(Error({}), "no error");
}

TEST_F(ConfigTest, HelpAndVersionNeedNoValidEnvironment) {
  environment_ = {{"TETRAD_THREADS", "x"}};
  auto loaded = Load({"--help"});
  ASSERT_TRUE(loaded.ok());
  for (const ConfigOption& option : ConfigOptions()) {
    EXPECT_THAT(loaded->help, HasSubstr(std::string(option.name)));
  }
  loaded = Load({"--version"});
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->action, ConfigAction::kPrintVersion);
}

TEST_F(ConfigTest, EveryOptionIsDocumented) {
  std::ifstream file("docs/configuration.md");  // tests run in the root of the tree
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  for (const ConfigOption& option : ConfigOptions()) {
    EXPECT_THAT(page, HasSubstr("| `--" + std::string(option.name))) << option.name;
  }
}

}  // namespace
}  // namespace tetrad
