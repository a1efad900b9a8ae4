// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/checkpoint.h"

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "engine/checkpoint/test_files.h"

namespace tetrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Safetensors;
using testing::TempFolder;

std::string Index(const std::string& weight_map) {
  return absl::StrCat(R"({"metadata":{"total_size":8.5},"weight_map":{)", weight_map, "}}");
}

// Two shards, "a" in the first and "b" in the second.
class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() : root_(*Root::Open(folder_.path().string())) {
    folder_.Write("m/one.safetensors", Safetensors({{"a", "U8", {4}, "aaaa"}}));
    folder_.Write("m/two.safetensors", Safetensors({{"b", "U8", {4}, "bbbb"}}));
  }

  void WriteIndex(const std::string& weight_map) const {
    folder_.Write("m/model.safetensors.index.json", Index(weight_map));
  }

  std::string Refusal() const {
    const auto checkpoint = Checkpoint::Open(root_, "m");
    EXPECT_FALSE(checkpoint.ok());
    return std::string(checkpoint.status().message());
  }

  const TempFolder folder_;
  const Root root_;
};

constexpr char kRightMap[] = R"("a":"one.safetensors","b":"two.safetensors")";

TEST_F(CheckpointTest, ShardsOpenAsTheIndexSays) {
  WriteIndex(kRightMap);
  const auto checkpoint = Checkpoint::Open(root_, "m");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_TRUE(checkpoint->Find("a").has_value());
  EXPECT_TRUE(checkpoint->Find("b").has_value());
  EXPECT_FALSE(checkpoint->Find("c").has_value());
  EXPECT_THAT(checkpoint->notes(), IsEmpty());
  EXPECT_TRUE(Checkpoint::Open(root_, "m/").ok());
}

TEST_F(CheckpointTest, OneFileNeedsNoIndex) {
  folder_.Write("m/model.safetensors", Safetensors({{"c", "U8", {4}, "cccc"}}));
  const auto checkpoint = Checkpoint::Open(root_, "m");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_TRUE(checkpoint->Find("c").has_value());
  EXPECT_FALSE(checkpoint->Find("a").has_value());

  folder_.Write("model.safetensors", Safetensors({{"top", "U8", {1}, "t"}}));
  const auto top = Checkpoint::Open(root_, "");
  ASSERT_TRUE(top.ok()) << top.status();
  EXPECT_TRUE(top->Find("top").has_value());
}

TEST_F(CheckpointTest, MissingShardsAreListed) {
  WriteIndex(R"("a":"one.safetensors","b":"two.safetensors","c":"x1","d":"x2","e":"x3","f":"x4",)"
             R"("g":"x5","h":"x6","i":"x6")");
  const auto checkpoint = Checkpoint::Open(root_, "m");
  EXPECT_EQ(checkpoint.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Refusal(), HasSubstr("shards that are not there: `x1`, `x2`, `x3`, `x4`, `x5`, "
                                   "... (6 in all)"));
}

TEST_F(CheckpointTest, ATensorInAnotherShardIsRefused) {
  WriteIndex(R"("a":"two.safetensors","b":"two.safetensors")");
  // Only shards that the index names are opened, so "a" is simply not where it should be.
  EXPECT_THAT(Refusal(), HasSubstr("not where it says: `a` in `two.safetensors`"));
  WriteIndex(R"("a":"two.safetensors","b":"one.safetensors")");
  EXPECT_THAT(Refusal(), HasSubstr("in another shard than it says: `a` is in `one.safetensors`, "
                                   "not in `two.safetensors`"));
}

TEST_F(CheckpointTest, ATensorTwiceInTheShardsIsRefused) {
  folder_.Write("m/two.safetensors",
                Safetensors({{"b", "U8", {4}, "bbbb"}, {"a", "U8", {4}, "AAAA"}}));
  WriteIndex(kRightMap);
  EXPECT_THAT(Refusal(), HasSubstr("`a` is in `two.safetensors`, not in `one.safetensors`"));
}

TEST_F(CheckpointTest, ATensorTheIndexForgotIsRefusedNotDropped) {
  folder_.Write("m/two.safetensors",
                Safetensors({{"b", "U8", {4}, "bbbb"}, {"extra", "U8", {1}, "e"}}));
  WriteIndex(kRightMap);
  EXPECT_THAT(Refusal(), HasSubstr("does not list: `extra` in `two.safetensors`"));
}

TEST_F(CheckpointTest, ATensorThatIsNowhereIsRefused) {
  WriteIndex(absl::StrCat(kRightMap, R"(,"gone":"one.safetensors")"));
  EXPECT_THAT(Refusal(), HasSubstr("not where it says: `gone` in `one.safetensors`"));
}

TEST_F(CheckpointTest, AStrayCopyBesideTheIndexIsIgnoredAndNoted) {
  WriteIndex(kRightMap);
  folder_.Write("m/model.safetensors", Safetensors({{"a", "U8", {4}, "XXXX"}}));
  const auto checkpoint = Checkpoint::Open(root_, "m");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT(checkpoint->notes(), ElementsAre(HasSubstr("ignored m/model.safetensors")));
  const auto a = checkpoint->Find("a");
  std::vector<uint8_t> bytes(4);
  ASSERT_TRUE(a->file->Read(a->info, 0, bytes).ok());
  EXPECT_EQ(bytes, std::vector<uint8_t>(4, 'a'));
}

TEST_F(CheckpointTest, AnIndexOverTheSingleFileNameIsNoStray) {
  folder_.Write("m/model.safetensors", Safetensors({{"c", "U8", {1}, "c"}}));
  WriteIndex(R"("c":"model.safetensors")");
  const auto checkpoint = Checkpoint::Open(root_, "m");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT(checkpoint->notes(), IsEmpty());
}

TEST_F(CheckpointTest, IndexNamesCannotLeaveTheRoot) {
  for (const char* shard :
       {"../../etc/passwd", "/etc/passwd", "", "..", "sub/../one.safetensors"}) {
    WriteIndex(absl::StrCat(R"("a":")", shard, R"(")"));
    const auto checkpoint = Checkpoint::Open(root_, "m");
    EXPECT_EQ(checkpoint.status().code(), absl::StatusCode::kInvalidArgument) << shard;
  }
}

TEST_F(CheckpointTest, ModelCacheLinksLoad) {
  const auto cache = folder_.path() / "models--org--name";
  folder_.Write("models--org--name/blobs/f00d", Safetensors({{"c", "U8", {1}, "c"}}));
  folder_.Write("models--org--name/blobs/beef", Index(R"("c":"model-00001-of-00001.safetensors")"));
  std::filesystem::create_directories(cache / "snapshots/rev");
  std::filesystem::create_symlink("../../blobs/f00d",
                                  cache / "snapshots/rev/model-00001-of-00001.safetensors");
  std::filesystem::create_symlink("../../blobs/beef",
                                  cache / "snapshots/rev/model.safetensors.index.json");
  const auto checkpoint = Checkpoint::Open(root_, "models--org--name/snapshots/rev");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_TRUE(checkpoint->Find("c").has_value());
}

TEST_F(CheckpointTest, BadIndexesAreRefusedWithTheirReason) {
  const struct {
    std::string json;
    const char* reason;
  } cases[] = {
      {"", "not well-formed JSON"},
      {"[]", "not a JSON object"},
      {"3", "not a JSON object"},
      {"{}", "`weight_map` is missing"},
      {R"({"weight_map":[]})", "`weight_map` is not an object"},
      {R"({"weight_map":"x"})", "`weight_map` is not an object"},
      {R"({"weight_map":{"a":1}})", "no file name for tensor `a`"},
      {R"({"weight_map":{"a":{"b":"c"}}})", "no file name for tensor `a`"},
      {R"({"weight_map":{},"weight_map":{}})", "`weight_map` appears twice"},
      {R"({"weight_map":{"a":"one.safetensors","a":"two.safetensors"}})", "`a` appears twice"},
      {"{\"weight_map\":{\"\xFF\xFE\":\"x\"}}", "not UTF-8"},
      {std::string(100, '[') + "]", "index is not a JSON object"},
      {"{\"x\":" + std::string(100, '['), "nested deeper"},
  };
  for (const auto& c : cases) {
    folder_.Write("m/model.safetensors.index.json", c.json);
    EXPECT_THAT(Refusal(), HasSubstr(c.reason)) << c.json;
    EXPECT_THAT(Refusal(), HasSubstr("m/model.safetensors.index.json: ")) << c.json;
  }
}

TEST_F(CheckpointTest, AnEmptyFolderSaysWhatWasLookedFor) {
  const auto checkpoint = Checkpoint::Open(root_, "nothing\n\xE9");
  EXPECT_EQ(checkpoint.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(checkpoint.status().message()),
              HasSubstr("`nothing\\x0A\\xE9`: neither model.safetensors.index.json nor"));
}

TEST_F(CheckpointTest, ConfigurationDeclaresTheDialect) {
  folder_.Write("m/model.safetensors", Safetensors({{"c", "U8", {1}, "c"}}));
  const struct {
    const char* config;
    const char* hf_quant_config;
    Dialect dialect;
    const char* refusal;
  } cases[] = {
      {"{}", "{}", Dialect::kAuto, nullptr},
      {R"({"quantization_config":{"quant_method":"modelopt"}})", "{}", Dialect::kModelOpt, nullptr},
      {R"({"quantization_config":{"quant_method":"modelopt_fp4"}})", "{}", Dialect::kModelOpt,
       nullptr},
      {R"({"a":{"quant_method":"modelopt"},"quantization_config":{"format":"x",)"
       R"("config_groups":{"g":{"quant_method":"modelopt"}},"quant_method":"compressed-tensors"}})",
       "{}", Dialect::kCompressedTensors, nullptr},
      {"{}", R"({"producer":{"name":"modelopt","version":"0.29.0"}})", Dialect::kModelOpt, nullptr},
      {R"({"quantization_config":{"quant_method":"fp8"}})", "{}", Dialect::kAuto, nullptr},
      {R"({"quantization_config":{"quant_method":"compressed-tensors"}})",
       R"({"producer":{"name":"modelopt"}})", Dialect::kAuto, "different dialects"},
      {R"({"quantization_config":)", "{}", Dialect::kAuto, "m/config.json: not well-formed"},
  };
  for (const auto& c : cases) {
    folder_.Write("m/config.json", c.config);
    folder_.Write("m/hf_quant_config.json", c.hf_quant_config);
    const auto checkpoint = Checkpoint::Open(root_, "m");
    if (c.refusal != nullptr) {
      EXPECT_THAT(std::string(checkpoint.status().message()), HasSubstr(c.refusal));
      continue;
    }
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_EQ(checkpoint->declared_dialect(), c.dialect) << c.config;
  }
}

}  // namespace
}  // namespace tetrad
