// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Daemon: a tetradd process of its own, in a temporary folder, for one test.
//
// It listens on a Unix socket, a TCP port and an HTTP port that it chose
// itself; all are read from its log. The destructor kills and removes what is
// left. For one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "absl/time/time.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpcpp/channel.h"
#include "grpcpp/security/credentials.h"
#include "tetrad/v1/admin.grpc.pb.h"
#include "tetrad/v1/gemm.grpc.pb.h"
#include "tetrad/v1/memory.grpc.pb.h"
#include "tetrad/v1/status.grpc.pb.h"
#include "tetrad/v1/weights.grpc.pb.h"

namespace tetrad::e2e {

// A folder that goes with its owner.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class Daemon {
 public:
  // Starts with `flags` and waits until ready; a failure fails the test.
  explicit Daemon(const std::vector<std::string>& flags = {});
  ~Daemon();

  std::string socket() const;
  const std::string& tcp() const { return tcp_; }
  const std::string& http() const { return http_; }
  const std::string& health() const { return health_; }  // of --health, if it is given
  const std::string& folder() const { return folder_.path(); }
  pid_t pid() const { return pid_; }
  std::string Log() const;

  void Signal(int signal) const;
  // The exit code, 128 + signal if one ended it; nothing if it still runs then.
  std::optional<int> Wait(absl::Duration limit);
  // Starts it again in the same folder after it ended.
  void Restart();

 private:
  void Start();

  TemporaryFolder folder_;
  const std::vector<std::string> flags_;
  pid_t pid_ = -1;
  std::string tcp_;
  std::string http_;
  std::string health_;
};

struct ProcessResult {
  int exit_code = -1;
  std::string output;  // standard output and error
};
// Runs tetradd with just these arguments until it ends by itself.
ProcessResult RunTetradd(const std::vector<std::string>& arguments);

// A connection of its own, shared with nobody; in plain text without `credentials`.
std::shared_ptr<grpc::Channel> Connect(
    const std::string& address,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials = nullptr);

struct Stubs {
  explicit Stubs(std::shared_ptr<grpc::Channel> channel);
  explicit Stubs(const Daemon& daemon) : Stubs(Connect(daemon.socket())) {}
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Gemm::Stub> gemm;
  std::unique_ptr<v1::Weights::Stub> weights;
  std::unique_ptr<v1::Memory::Stub> memory;
  std::unique_ptr<v1::Status::Stub> status;
  std::unique_ptr<v1::Admin::Stub> admin;
  std::unique_ptr<grpc::health::v1::Health::Stub> health;
};

// The body of a page; empty if it could not be had. `status` gets the code;
// `header` is a whole line without its end.
std::string HttpGet(const std::string& address, const std::string& path, int* status = nullptr,
                    const std::string& header = {});

}  // namespace tetrad::e2e
