// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/socket_lock.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace tetrad {
namespace {

using ::testing::HasSubstr;

class SocketLockTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/tetrad-lock.XXXXXX";
    ASSERT_NE(::mkdtemp(pattern), nullptr);
    folder_ = pattern;
    path_ = folder_ + "/s";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  UniqueFd Bind() {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(socket.get(), 1), 0);
    return socket;
  }
  std::string folder_, path_;
};

TEST_F(SocketLockTest, OneHolderAtATime) {
  {
    const auto first = SocketLock::Acquire(path_);
    ASSERT_TRUE(first.ok()) << first.status();
    const auto second = SocketLock::Acquire(path_);
    EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(
        std::string(second.status().message()),
        HasSubstr("unix:" + path_ + ": a running daemon, process " + std::to_string(::getpid())));
  }
  EXPECT_TRUE(SocketLock::Acquire(path_).ok());
}

TEST_F(SocketLockTest, LeftoverSocketIsTakenOver) {
  Bind();
  ASSERT_TRUE(std::filesystem::exists(path_));
  const auto lock = SocketLock::Acquire(path_);
  EXPECT_TRUE(lock.ok()) << lock.status();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(SocketLockTest, ForeignListenerIsLeftAlone) {
  const UniqueFd listener = Bind();
  const auto lock = SocketLock::Acquire(path_);
  EXPECT_EQ(lock.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(lock.status().message()), HasSubstr("another process listens there"));
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(SocketLockTest, OtherFilesAreLeftAlone) {
  std::ofstream(path_) << "precious";
  const auto lock = SocketLock::Acquire(path_);
  EXPECT_EQ(lock.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::filesystem::file_size(path_), 8u);
}

TEST_F(SocketLockTest, MissingFolderIsNamed) {
  const auto lock = SocketLock::Acquire(folder_ + "/missing/s");
  EXPECT_EQ(lock.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(lock.status().message()), HasSubstr("No such file or directory"));
}

}  // namespace
}  // namespace tetrad
