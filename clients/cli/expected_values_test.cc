// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/expected_values.h"

#include <cstring>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace tetrad::cli {
namespace {

using ::testing::HasSubstr;

class ExpectedValuesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/tetrad-expected-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& header, const std::vector<float>& values) {
    std::string path = folder_ + "/f.safetensors";
    std::ofstream file(path, std::ios::binary);
    const uint64_t length = header.size();
    file.write(reinterpret_cast<const char*>(&length), sizeof(length));
    file << header;
    file.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(float)));
    return path;
  }
  static v1::GroupDims Dims(int n, int k) {
    v1::GroupDims dims;
    dims.set_n(n);
    dims.set_k(k);
    return dims;
  }
  std::string folder_;
};

TEST_F(ExpectedValuesTest, TensorPerGroupAndOneForAll) {
  const std::string path = Write(
      R"({"__metadata__":{"a":"b"},
          "e.1.w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},
          "e.0.w":{"dtype":"F32","shape":[2,2],"data_offsets":[8,24]},
          "all":{"dtype":"F32","shape":[3,1,2],"data_offsets":[0,24]}})",
      {10, 11, 1, 2, 3, 4});
  const auto per_group = ExpectedValues::Load(path, "e.{expert}.w", {Dims(2, 2), Dims(1, 2)});
  ASSERT_TRUE(per_group.ok()) << per_group.status();
  EXPECT_EQ(per_group->at(0, 1, 0), 3);
  EXPECT_EQ(per_group->at(1, 0, 1), 11);
  const auto all = ExpectedValues::Load(path, "all", {Dims(1, 2), Dims(1, 2), Dims(1, 2)});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->at(0, 0, 1), 11);
  EXPECT_EQ(all->at(2, 0, 0), 3);
}

TEST_F(ExpectedValuesTest, RefusalsNameFileAndTensor) {
  const std::string head = R"("dtype":"F32","shape":[1,2])";
  const struct {
    std::string header;
    const char* message;
  } kCases[] = {
      {"[]", "not a JSON object"},
      {"{", "not a JSON object"},
      {"{}", "no tensor e.0"},
      {R"({"e.0":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]}})",
       "\"BF16\" [1,2], expected F32"},
      {R"({"e.0":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})",
       "[2,1], expected F32 [1,2]"},
      {R"({"e.0":{"dtype":"F32","shape":[1,2]}})", "lacks"},
      {absl::StrCat(R"({"e.0":{)", head, R"(,"data_offsets":[0,4]}})"), "needs 8 bytes"},
      {absl::StrCat(R"({"e.0":{)", head, R"(,"data_offsets":[4,12]}})"), "needs 8 bytes of 8"},
      {absl::StrCat(R"({"e.0":{)", head, R"(,"data_offsets":[8,0]}})"), "needs 8 bytes"},
      {absl::StrCat(R"({"e.0":{)", head, R"(,"data_offsets":[-8,0]}})"), "lacks"},
  };
  for (const auto& c : kCases) {
    const std::string path = Write(c.header, {1, 2});
    const auto values = ExpectedValues::Load(path, "e.{expert}", {Dims(1, 2)});
    ASSERT_FALSE(values.ok()) << c.header;
    EXPECT_THAT(std::string(values.status().message()), HasSubstr(c.message)) << c.header;
  }
  EXPECT_EQ(ExpectedValues::Load(folder_ + "/none", "e", {}).status().code(),
            absl::StatusCode::kNotFound);
  std::ofstream(folder_ + "/short") << "abc";
  EXPECT_FALSE(ExpectedValues::Load(folder_ + "/short", "e", {}).ok());
  std::ofstream(folder_ + "/long") << std::string(8, '\x7F') << "{}";
  EXPECT_FALSE(ExpectedValues::Load(folder_ + "/long", "e", {}).ok());
}

}  // namespace
}  // namespace tetrad::cli
