// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Proxy: a socket in front of a daemon that loses connections on command, as a
// network would: after so many bytes from the client, and between any two.
//
// Connections get the limits given to CutAfter(), each the next one, in the
// order in which they come; when none is left they stay. Thread-safe. Failures
// of system calls that a test cannot do without fail the test.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/support/unique_fd.h"

namespace tetrad::e2e {

class Proxy {
 public:
  // `target` is "unix:PATH" or "127.0.0.1:PORT", and so is address(): with a
  // `socket` the proxy listens at that path, else on a free port.
  explicit Proxy(const std::string& target, const std::string& socket = {});
  // Cuts all connections.
  ~Proxy();

  const std::string& address() const { return address_; }
  // To what the next connections lead.
  void Retarget(const std::string& target);
  void CutAfter(int64_t bytes);
  // Limits that were reached.
  int64_t cuts() const;

 private:
  void Accept(const std::stop_token& stop);
  void Forward(const std::stop_token& stop, UniqueFd client, UniqueFd daemon, int64_t limit);

  std::string address_;
  UniqueFd listener_;
  UniqueFd stop_event_;
  mutable std::mutex mutex_;
  std::string target_;                     // guarded by mutex_
  std::deque<int64_t> limits_;             // guarded by mutex_
  int64_t cuts_ = 0;                       // guarded by mutex_
  std::vector<std::jthread> connections_;  // of the accepting thread
  std::jthread accepting_;                 // goes first
};

}  // namespace tetrad::e2e
