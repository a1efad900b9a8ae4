// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/daemon.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"

#include "engine/support/unique_fd.h"

namespace tetrad::e2e {
namespace {

constexpr absl::Duration kReadyLimit = absl::Seconds(60);

// Without the configuration of whoever runs the tests.
std::vector<std::string> CleanEnvironment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (std::string(*variable).starts_with("TETRAD_")) continue;
    variables.emplace_back(*variable);
  }
  return variables;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

pid_t Spawn(std::vector<std::string> arguments, const std::string& log) {
  arguments.insert(arguments.begin(), TETRADD);
  std::vector<std::string> environment = CleanEnvironment();
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  ::posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, TETRADD, &actions, nullptr, Pointers(arguments).data(),
                                  Pointers(environment).data());
  ::posix_spawn_file_actions_destroy(&actions);
  EXPECT_EQ(error, 0) << TETRADD;
  return error == 0 ? pid : -1;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The value of `key=` in the last line that has `event`.
std::string LogValue(const std::string& log, const std::string& event, const std::string& key) {
  std::string value;
  for (const auto line : absl::StrSplit(log, '\n')) {
    const std::string text(line);
    const bool json = text.starts_with('{');
    if (text.find(json ? "\"event\":\"" + event + "\"" : "event=" + event) == std::string::npos) {
      continue;
    }
    const std::string before = json ? "\"" + key + "\":\"" : " " + key + "=";
    const size_t at = text.find(before);
    if (at == std::string::npos) continue;
    const size_t begin = at + before.size();
    value = text.substr(begin, text.find(json ? '"' : ' ', begin) - begin);
  }
  return value;
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  char pattern[] = "/tmp/tetrad-e2e.XXXXXX";
  EXPECT_NE(::mkdtemp(pattern), nullptr);
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() { std::filesystem::remove_all(path_); }

Daemon::Daemon(const std::vector<std::string>& flags) : flags_(flags) { Start(); }

void Daemon::Start() {
  // On a machine with a GPU the same tests can be run over it.
  const char* const device = std::getenv("TETRAD_TEST_DEVICE");
  std::vector<std::string> arguments = {"--device",
                                        device != nullptr ? device : "cpu",
                                        "--listen",
                                        socket(),
                                        "--listen",
                                        "127.0.0.1:0",
                                        "--http",
                                        "127.0.0.1:0",
                                        "--lame-duck-seconds",
                                        "0"};
  // A flag given twice is an error, so those of the test replace ours.
  for (const std::string& flag : flags_) {
    const auto mine = std::ranges::find(arguments, flag);
    if (mine != arguments.end() && flag != "--listen") arguments.erase(mine, mine + 2);
  }
  arguments.insert(arguments.end(), flags_.begin(), flags_.end());
  std::filesystem::remove(folder_.path() + "/log");
  pid_ = Spawn(arguments, folder_.path() + "/log");
  const absl::Time limit = absl::Now() + kReadyLimit;
  std::string grpc;
  while (grpc.empty() && absl::Now() < limit) {
    absl::SleepFor(absl::Milliseconds(20));
    ASSERT_FALSE(Wait(absl::ZeroDuration()).has_value()) << Log();
    grpc = LogValue(Log(), "ready", "grpc");
  }
  ASSERT_FALSE(grpc.empty()) << Log();
  const std::vector<std::string> addresses = absl::StrSplit(grpc, ',');
  ASSERT_EQ(addresses.size(), 2u) << grpc;
  tcp_ = addresses[1];
  http_ = LogValue(Log(), "ready", "http");
  health_ = LogValue(Log(), "ready", "health");
}

Daemon::~Daemon() {
  if (pid_ <= 0) return;
  if (::testing::Test::HasFailure()) std::fprintf(stderr, "%s", Log().c_str());
  Signal(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::string Daemon::socket() const { return absl::StrCat("unix:", folder_.path(), "/tetrad.sock"); }

std::string Daemon::Log() const { return ReadFile(folder_.path() + "/log"); }

void Daemon::Signal(int signal) const {
  if (pid_ > 0) ::kill(pid_, signal);
}

std::optional<int> Daemon::Wait(absl::Duration limit) {
  const absl::Time end = absl::Now() + limit;
  for (;;) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    if (absl::Now() >= end) return std::nullopt;
    absl::SleepFor(absl::Milliseconds(10));
  }
}

void Daemon::Restart() {
  ASSERT_EQ(pid_, -1) << "still running";
  Start();
}

ProcessResult RunTetradd(const std::vector<std::string>& arguments) {
  const TemporaryFolder folder;
  ProcessResult result;
  const pid_t pid = Spawn(arguments, folder.path() + "/log");
  int status = 0;
  if (pid > 0 && ::waitpid(pid, &status, 0) == pid) {
    result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  result.output = ReadFile(folder.path() + "/log");
  return result;
}

std::shared_ptr<grpc::Channel> Connect(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(
      address, credentials != nullptr ? credentials : grpc::InsecureChannelCredentials(),
      arguments);
}

Stubs::Stubs(std::shared_ptr<grpc::Channel> connection)
    : channel(std::move(connection)),
      gemm(v1::Gemm::NewStub(channel)),
      weights(v1::Weights::NewStub(channel)),
      memory(v1::Memory::NewStub(channel)),
      status(v1::Status::NewStub(channel)),
      admin(v1::Admin::NewStub(channel)),
      health(grpc::health::v1::Health::NewStub(channel)) {}

std::string HttpGet(const std::string& address, const std::string& path, int* status,
                    const std::string& header) {
  const size_t colon = address.rfind(':');
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + colon + 1)));
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) return "";
  const std::string request =
      absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\n", header,
                   header.empty() ? "" : "\r\n", "Connection: close\r\n\r\n");
  if (::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return "";
  std::string answer;
  char buffer[16 << 10];
  for (ssize_t size; (size = ::recv(socket.get(), buffer, sizeof(buffer), 0)) > 0;) {
    answer.append(buffer, static_cast<size_t>(size));
  }
  if (status != nullptr && answer.size() > 12) *status = std::atoi(answer.c_str() + 9);
  const size_t body = answer.find("\r\n\r\n");
  return body == std::string::npos ? "" : answer.substr(body + 4);
}

}  // namespace tetrad::e2e
