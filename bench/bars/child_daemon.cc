// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/bars/child_daemon.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "clients/cpp/client.h"
#include "engine/support/status_macros.h"

namespace tetrad::bars {
namespace {

// A device may have to start and measure its rates.
constexpr absl::Duration kReadyLimit = absl::Seconds(120);
constexpr absl::Duration kStopLimit = absl::Seconds(40);  // longer than the daemon's bounded drain
constexpr absl::Duration kPause = absl::Milliseconds(20);
constexpr size_t kLogEndBytes = 2000;

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Without the configuration of whoever runs the benchmark.
std::vector<std::string> CleanEnvironment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!std::string_view(*variable).starts_with("TETRAD_")) variables.emplace_back(*variable);
  }
  return variables;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildDaemon>> ChildDaemon::Start(
    const std::string& program, const std::vector<std::string>& flags) {
  std::error_code error;
  std::string folder =
      (std::filesystem::temp_directory_path(error) / "tetrad-bars.XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) {
    return absl::UnavailableError(absl::StrCat(folder, ": ", std::strerror(errno)));
  }
  std::unique_ptr<ChildDaemon> daemon(new ChildDaemon(std::move(folder)));
  TETRAD_RETURN_IF_ERROR(daemon->Spawn(program, flags));
  TETRAD_RETURN_IF_ERROR(daemon->WaitUntilReady());
  return daemon;
}

absl::Status ChildDaemon::Spawn(const std::string& program, const std::vector<std::string>& flags) {
  std::vector<std::string> arguments = {
      program, "--listen", endpoint(), "--http", "off", "--lame-duck-seconds", "0"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  std::vector<std::string> environment = CleanEnvironment();
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 1, (folder_ + "/log").c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND, 0600);
  ::posix_spawn_file_actions_adddup2(&actions, 1, 2);
  const int error = ::posix_spawn(&pid_, program.c_str(), &actions, nullptr,
                                  Pointers(arguments).data(), Pointers(environment).data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return absl::OkStatus();
  pid_ = -1;
  return absl::UnavailableError(absl::StrCat(program, ": ", std::strerror(error)));
}

absl::Status ChildDaemon::WaitUntilReady() {
  const absl::Time limit = absl::Now() + kReadyLimit;
  for (;;) {
    const absl::Status status = Client::Connect(endpoint()).status();
    if (status.ok()) return absl::OkStatus();
    if (Ended() || absl::Now() > limit) {
      return absl::UnavailableError(absl::StrCat("the daemon does not answer (", status.message(),
                                                 "); it said: ", EndOfLog()));
    }
    absl::SleepFor(kPause);
  }
}

bool ChildDaemon::Ended() {
  if (pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
  return pid_ <= 0;
}

std::string ChildDaemon::EndOfLog() const {
  std::ifstream file(folder_ + "/log");
  const std::string log(std::istreambuf_iterator<char>(file), {});
  return log.size() > kLogEndBytes ? log.substr(log.size() - kLogEndBytes) : log;
}

ChildDaemon::~ChildDaemon() {
  if (!Ended()) ::kill(pid_, SIGTERM);
  const absl::Time limit = absl::Now() + kStopLimit;
  while (!Ended() && absl::Now() < limit) absl::SleepFor(kPause);
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string ChildDaemon::endpoint() const { return absl::StrCat("unix:", folder_, "/s"); }

}  // namespace tetrad::bars
