// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/kernels/child_program.h"

#include <cerrno>
#include <cstddef>
#include <cstring>

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "engine/support/unique_fd.h"

extern char** environ;

namespace tetrad::bars {
namespace {

absl::Status Failed(const std::string& program, const char* what) {
  return absl::FailedPreconditionError(absl::StrCat(program, ": ", what));
}

// A file of memory with the input, so that neither side waits for the other.
UniqueFd FileOf(const std::string& input) {
  UniqueFd file(::memfd_create("input", MFD_CLOEXEC));
  size_t written = 0;
  while (file && written < input.size()) {
    const ssize_t count = ::write(file.get(), input.data() + written, input.size() - written);
    if (count <= 0) return {};
    written += static_cast<size_t>(count);
  }
  if (file && ::lseek(file.get(), 0, SEEK_SET) != 0) return {};
  return file;
}

}  // namespace

absl::StatusOr<std::string> RunChild(const std::vector<std::string>& command,
                                     const std::string& input) {
  const UniqueFd file = FileOf(input);
  int ends[2];
  if (!file || ::pipe2(ends, O_CLOEXEC) != 0) return Failed(command[0], std::strerror(errno));
  UniqueFd reading(ends[0]), writing(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, file.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, writing.get(), STDOUT_FILENO);
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return Failed(command[0], std::strerror(error));
  writing.Reset();
  std::string output;
  char buffer[4096];
  while (true) {
    const ssize_t count = ::read(reading.get(), buffer, sizeof(buffer));
    if (count > 0) output.append(buffer, static_cast<size_t>(count));
    if (count == 0 || (count < 0 && errno != EINTR)) break;
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return output;
  return Failed(command[0], WIFEXITED(status)
                                ? absl::StrCat("exit status ", WEXITSTATUS(status)).c_str()
                                : "ended by a signal");
}

}  // namespace tetrad::bars
