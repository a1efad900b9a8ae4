// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// DoomedProcess: a client process that works as told until it is killed, at the
// latest by the destructor (doomed_client.cc). For one thread.
#pragma once

#include <csignal>
#include <string>
#include <utility>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/support/unique_fd.h"

namespace tetrad::e2e {

class DoomedProcess {
 public:
  // `program`: where e2e_doomed_client is.
  DoomedProcess(const std::string& program, const std::string& address, const std::string& mode,
                const std::string& weights) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const UniqueFd read(ends[0]), write(ends[1]);
    std::string arguments[] = {program, address, mode, weights};
    char* argv[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(),
                    arguments[3].data(), nullptr};
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, write.get(), 1);
    EXPECT_EQ(::posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv, environ), 0);
    ::posix_spawn_file_actions_destroy(&actions);
    for (char c; ::read(read.get(), &c, 1) == 1 && c != '\n';) announced_.push_back(c);
    EXPECT_NE(announced_, "");
  }
  ~DoomedProcess() { Kill(); }

  // The name of what it holds.
  const std::string& announced() const { return announced_; }
  void Signal(int signal) const { ::kill(pid_, signal); }
  void Kill() {
    if (pid_ <= 0) return;
    Signal(SIGKILL);
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  }

 private:
  pid_t pid_ = -1;
  std::string announced_;
};

}  // namespace tetrad::e2e
