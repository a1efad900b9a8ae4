// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/root.h"

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "absl/strings/str_cat.h"

#include "engine/checkpoint/test_files.h"

namespace tetrad {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::TempFolder;

constexpr uint64_t kLimit = 1 << 20;

class RootTest : public ::testing::Test {
 protected:
  RootTest() : root_(*Root::Open((outside_.path() / "root").string())) {}

  // The text of a file below the root, or the refusal.
  absl::StatusOr<std::string> Read(const std::string& path) const {
    const auto file = root_.OpenFile(path);
    if (!file.ok()) return file.status();
    return ReadWhole(*file, kLimit);
  }

  // outside_/secret must never be read; outside_/root is the allowed folder.
  struct Outside : TempFolder {
    Outside() {
      Write("secret", "secret");
      Write("root/plain", "inside");
      Write("root/models/a/blobs/1234", "blob");
      fs::create_directories(path() / "root/models/a/snapshots/main");
    }
  } outside_;
  const fs::path inside_ = outside_.path() / "root";
  const Root root_;
};

TEST_F(RootTest, FilesBelowTheRootOpen) {
  EXPECT_EQ(*Read("plain"), "inside");
  EXPECT_EQ(*Read("models/a/blobs/1234"), "blob");
  EXPECT_EQ(*Read("./models//a/./blobs/1234"), "blob");
}

TEST_F(RootTest, LinksThatStayBelowTheRootWork) {
  fs::create_symlink("../../blobs/1234", inside_ / "models/a/snapshots/main/model.safetensors");
  fs::create_directory_symlink("models/a/snapshots/main", inside_ / "latest");
  EXPECT_EQ(*Read("models/a/snapshots/main/model.safetensors"), "blob");
  EXPECT_EQ(*Read("latest/model.safetensors"), "blob");
}

TEST_F(RootTest, NothingLeadsOut) {
  fs::create_symlink("../secret", inside_ / "link");
  fs::create_symlink(outside_.path() / "secret", inside_ / "absolute_link");
  fs::create_directory_symlink("..", inside_ / "up");
  fs::create_directory_symlink("/", inside_ / "slash");
  fs::create_symlink("../../../../../secret", inside_ / "models/a/snapshots/main/deep");
  fs::create_symlink("/proc/self/fd/0", inside_ / "magic");
  fs::create_symlink("loop", inside_ / "loop");
  const struct {
    std::string path;
    absl::StatusCode code;
    const char* reason;
  } cases[] = {
      {"../secret", absl::StatusCode::kInvalidArgument, "`..` is not allowed"},
      {"..", absl::StatusCode::kInvalidArgument, "`..` is not allowed"},
      {"models/../../secret", absl::StatusCode::kInvalidArgument, "`..` is not allowed"},
      {"models/../plain", absl::StatusCode::kInvalidArgument, "`..` is not allowed"},
      {"models/..", absl::StatusCode::kInvalidArgument, "`..` is not allowed"},
      {(outside_.path() / "secret").string(), absl::StatusCode::kInvalidArgument, "relative"},
      {(inside_ / "plain").string(), absl::StatusCode::kInvalidArgument, "relative"},
      {"", absl::StatusCode::kInvalidArgument, "empty"},
      {std::string("plain\0x", 7), absl::StatusCode::kInvalidArgument, "NUL"},
      {std::string(5000, 'a'), absl::StatusCode::kInvalidArgument, "longer than"},
      {"link", absl::StatusCode::kPermissionDenied, "leads out"},
      {"absolute_link", absl::StatusCode::kPermissionDenied, "leads out"},
      {"up/secret", absl::StatusCode::kPermissionDenied, "leads out"},
      {"slash/etc/passwd", absl::StatusCode::kPermissionDenied, "leads out"},
      {"models/a/snapshots/main/deep", absl::StatusCode::kPermissionDenied, "leads out"},
      {"magic", absl::StatusCode::kPermissionDenied, "leads out"},
      {"loop", absl::StatusCode::kInvalidArgument, "symbolic links"},
      {"absent", absl::StatusCode::kNotFound, "No such file"},
      {"\xFF\xFE", absl::StatusCode::kNotFound, "\\xFF\\xFE"},
  };
  for (const auto& c : cases) {
    const auto text = Read(c.path);
    ASSERT_FALSE(text.ok()) << c.path;
    EXPECT_EQ(text.status().code(), c.code) << text.status();
    EXPECT_THAT(std::string(text.status().message()), HasSubstr(c.reason));
    EXPECT_LT(text.status().message().size(), 400u);
  }
}

TEST_F(RootTest, OnlyRegularFilesAndWithoutWaiting) {
  ASSERT_EQ(mkfifo((inside_ / "fifo").c_str(), 0600), 0);
  const auto fifo = Read("fifo");  // nobody writes to it: a plain open would wait for ever
  EXPECT_THAT(std::string(fifo.status().message()), HasSubstr("not a regular file"));
  EXPECT_THAT(std::string(Read("models").status().message()), HasSubstr("not a regular file"));

  const UniqueFd socket_fd(socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = (inside_ / "socket").string();
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(socket_fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_FALSE(Read("socket").ok());
}

TEST_F(RootTest, NothingCanBeSwappedBetweenCheckAndOpen) {
  // A folder that is now one inside, now a link to the outside, as fast as it can be swapped.
  outside_.Write("root/real/secret", "inside");
  fs::create_directory_symlink("..", inside_ / "escape");
  std::atomic<bool> stop = false;
  std::thread swapper([&] {
    while (!stop) {
      fs::create_directory_symlink("real", inside_ / "turn");
      fs::remove(inside_ / "turn");
      fs::create_directory_symlink("escape", inside_ / "turn");
      fs::remove(inside_ / "turn");
    }
  });
  int opened = 0;
  for (int i = 0; i < 20'000; ++i) {
    const auto text = Read("turn/secret");
    if (!text.ok()) continue;
    ++opened;
    EXPECT_EQ(*text, "inside");
  }
  stop = true;
  swapper.join();
  EXPECT_GT(opened, 0);
}

TEST_F(RootTest, MovedRootKeepsWorkingAndAbsentRootIsRefused) {
  fs::rename(inside_, outside_.path() / "renamed");
  EXPECT_EQ(*Read("plain"), "inside");
  EXPECT_FALSE(Root::Open(inside_.string()).ok());
  EXPECT_FALSE(Root::Open((outside_.path() / "secret").string()).ok());
}

TEST_F(RootTest, ReadWholeKeepsToItsLimit) {
  const auto file = root_.OpenFile("plain");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(*ReadWhole(*file, 6), "inside");
  EXPECT_EQ(ReadWhole(*file, 5).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tetrad
