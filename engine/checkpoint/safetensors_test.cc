// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/safetensors.h"

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "engine/checkpoint/heap_meter.h"
#include "engine/checkpoint/test_files.h"

namespace tetrad {
namespace {

using testing::F32Bytes;
using ::testing::HasSubstr;
using testing::RawSafetensors;
using testing::Safetensors;
using testing::TempFolder;

absl::StatusOr<SafetensorsFile> OpenPath(const std::filesystem::path& path) {
  auto file = RegularFile::Adopt(UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC)), path.string());
  if (!file.ok()) return file.status();
  return SafetensorsFile::Open(*std::move(file));
}

std::string ReadAll(const SafetensorsFile& file, const TensorInfo& tensor) {
  std::vector<uint8_t> bytes(tensor.bytes());
  const absl::Status status = file.Read(tensor, 0, bytes);
  EXPECT_TRUE(status.ok()) << status;
  return {bytes.begin(), bytes.end()};
}

TEST(SafetensorsTest, OddOffsetsReadTheSameFromEveryFileSystem) {
  // An odd header length and an odd tensor before every scalar: nothing is aligned.
  const std::string data = absl::StrCat("abc", F32Bytes({1.5f}), "defgh", F32Bytes({-0.25f}));
  std::string header = R"({"x":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                       R"("xs":{"dtype":"F32","shape":[],"data_offsets":[3,7]},)"
                       R"("y":{"dtype":"U8","shape":[5],"data_offsets":[7,12]},)"
                       R"("ys":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}})";
  while (header.size() % 8 != 3) header += ' ';
  for (const char* parent : {"/tmp", "/dev/shm", "/var/tmp"}) {
    if (access(parent, W_OK) != 0) continue;
    const TempFolder folder(parent);
    const auto file = OpenPath(folder.Write("model.safetensors", RawSafetensors(header, data)));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(ReadAll(*file, *file->header().Find("x")), "abc");
    EXPECT_EQ(ReadAll(*file, *file->header().Find("xs")), F32Bytes({1.5f}));
    EXPECT_EQ(ReadAll(*file, *file->header().Find("y")), "defgh");
    EXPECT_EQ(ReadAll(*file, *file->header().Find("ys")), F32Bytes({-0.25f}));
  }
}

TEST(SafetensorsTest, HeaderLengthsAtReadBoundariesLoad) {
  const TempFolder folder;
  for (const size_t bytes : {2, 4096 - 8, 4096, 65536 - 8, 65536, 100'000, 1 << 20}) {
    std::string header = "{}";
    header.resize(bytes, ' ');
    const auto file = OpenPath(folder.Write("a", RawSafetensors(header, "")));
    EXPECT_TRUE(file.ok()) << bytes << ": " << file.status();
  }
}

TEST(SafetensorsTest, TwoHundredThousandTensorsLoad) {
  std::string header = "{";
  constexpr int kTensors = 200'000;
  for (int i = 0; i < kTensors; ++i) {
    absl::StrAppend(&header, i == 0 ? "" : ",", R"("model.layers.0.mlp.experts.)", i,
                    R"(.weight_scale_2":{"dtype":"U8","shape":[1],"data_offsets":[)", i, ",", i + 1,
                    "]}");
  }
  header += "}";
  ASSERT_GT(header.size(), 20'000'000u);
  const TempFolder folder;
  const auto path = folder.Write("a", RawSafetensors(header, std::string(kTensors, 'd')));
  const testing::HeapMeter meter;
  const auto file = OpenPath(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->header().size(), static_cast<size_t>(kTensors));
  EXPECT_LT(meter.peak(), 4 * header.size());
}

TEST(SafetensorsTest, BrokenFilesAreRefusedBeforeAnythingIsAllocated) {
  const std::string header = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  const std::string whole = RawSafetensors(header, "data");
  std::string huge = whole;
  huge[7] = '\x7F';
  std::string over_limit = RawSafetensors(header, "");
  over_limit[3] = '\x06';  // 100,663,296 and some: above the limit, whatever the file holds
  const struct {
    const char* what;
    std::string bytes;
    const char* reason;
  } cases[] = {
      {"empty", "", "truncated: 0 bytes"},
      {"length alone", whole.substr(0, 8), "truncated: 8 bytes"},
      {"cut in the header", whole.substr(0, 20), "truncated: header of 53 bytes in a file of 20"},
      {"cut in the data", whole.substr(0, whole.size() - 1), "tensor `a`: ends at byte 4"},
      {"absurd length", huge, "limit 100000000"},
      {"length above the limit", over_limit, "limit 100000000"},
      {"length 0", RawSafetensors("", "{}"), "does not start with '{'"},
      {"not an object", RawSafetensors("[]", ""), "does not start with '{'"},
      {"a pickle",
       "\x80\x02}q\x01(X\x05"
       "aaaaaaaaaaaaaaaaaaaaaaaa",
       "limit 100000000"},
  };
  const TempFolder folder;
  for (const auto& c : cases) {
    const auto path = folder.Write("broken", c.bytes);
    const testing::HeapMeter meter;
    const auto file = OpenPath(path);
    ASSERT_FALSE(file.ok()) << c.what;
    EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument) << c.what;
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(c.reason)) << c.what;
    EXPECT_THAT(std::string(file.status().message()), HasSubstr("/broken: ")) << c.what;
    EXPECT_LT(meter.peak(), 100'000u) << c.what;
  }
}

TEST(SafetensorsTest, SparseHeaderBombIsNotRead) {
  const TempFolder folder;
  const auto path = folder.Write("bomb", RawSafetensors(std::string(100'000'000, '\0'), ""));
  const testing::HeapMeter meter;
  const auto file = OpenPath(path);
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("does not start with '{'"));
  EXPECT_LT(meter.peak(), 100'000u);
}

TEST(SafetensorsTest, FilesThatChangeWhileOpenAreDataLoss) {
  const TempFolder folder;
  const std::string bytes = Safetensors({{"a", "U8", {4}, "abcd"}, {"b", "U8", {4}, "efgh"}});
  const auto open_fresh = [&] {
    const auto path = folder.Write("changing", bytes);
    // A time in the past, so that the change below cannot fall into the same clock tick.
    std::filesystem::last_write_time(
        path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
    return std::pair(path, OpenPath(path));
  };
  const struct {
    const char* what;
    void (*change)(const std::filesystem::path&);
    bool noticed;
  } cases[] = {
      {"shrinks into the tensor", [](const auto& path) { resize_file(path, file_size(path) - 2); },
       true},
      {"shrinks to nothing", [](const auto& path) { resize_file(path, 0); }, true},
      {"grows", [](const auto& path) { resize_file(path, file_size(path) + 1); }, true},
      {"is written to",
       [](const auto& path) {
         const UniqueFd fd(open(path.c_str(), O_WRONLY));
         ASSERT_EQ(pwrite(fd.get(), "X", 1, static_cast<off_t>(file_size(path)) - 1), 1);
       },
       true},
      {"is touched a nanosecond later",
       [](const auto& path) {
         last_write_time(path, last_write_time(path) + std::chrono::nanoseconds(1));
       },
       true},
      {"is replaced by rename",
       [](const auto& path) {
         const std::filesystem::path other = path.string() + ".new";
         copy_file(path, other);
         resize_file(other, 3);
         rename(other, path);
       },
       false},
      {"is removed", [](const auto& path) { std::filesystem::remove(path); }, false},
  };
  for (const auto& c : cases) {
    const auto [path, file] = open_fresh();
    ASSERT_TRUE(file.ok()) << file.status();
    c.change(path);
    std::vector<uint8_t> out(4);
    const absl::Status status = file->Read(*file->header().Find("b"), 0, out);
    EXPECT_EQ(status.code(), c.noticed ? absl::StatusCode::kDataLoss : absl::StatusCode::kOk)
        << c.what << ": " << status;
  }
}

TEST(SafetensorsTest, ReadsStayInsideTheTensor) {
  const TempFolder folder;
  const auto file = OpenPath(
      folder.Write("f", Safetensors({{"a", "U8", {4}, "abcd"}, {"b", "U8", {4}, "efgh"}})));
  ASSERT_TRUE(file.ok()) << file.status();
  const TensorInfo a = *file->header().Find("a");
  std::vector<uint8_t> out(2);
  EXPECT_TRUE(file->Read(a, 2, out).ok());
  EXPECT_EQ(out, (std::vector<uint8_t>{'c', 'd'}));
  EXPECT_EQ(file->Read(a, 3, out).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(file->Read(a, ~uint64_t{0}, out).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(file->Read(a, 4, {}).ok());
}

}  // namespace
}  // namespace tetrad
