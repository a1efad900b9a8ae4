// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/stopped_threads.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "absl/strings/str_cat.h"

namespace tetrad::e2e {

StoppedThreads::StoppedThreads(pid_t daemon, const std::string& name) {
  const std::string tasks = absl::StrCat("/proc/", daemon, "/task");
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    std::string found;
    std::ifstream(task.path() / "comm") >> found;
    if (found != name) continue;
    const pid_t thread = std::stoi(task.path().filename());
    const bool seized = ::ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) == 0;
    EXPECT_TRUE(seized) << "a process must be allowed to trace its children";
    if (!seized) continue;
    threads_.push_back(thread);
    EXPECT_EQ(::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr), 0);
    EXPECT_EQ(::waitpid(thread, nullptr, __WALL), thread);
  }
  EXPECT_FALSE(threads_.empty()) << name;
}

void StoppedThreads::Resume() {
  for (const pid_t thread : threads_) ::ptrace(PTRACE_DETACH, thread, nullptr, nullptr);
  threads_.clear();
}

}  // namespace tetrad::e2e
