// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// SocketLock: the right to listen at a Unix socket path.
//
// The RPC library would silently take the path from a running daemon. Here the
// right is a lock on the file PATH.lock, which the kernel drops with the
// process however that ends; a socket file whose lock is free is a leftover and
// is removed. The lock file itself stays: removing it would let two processes
// hold locks on two files of one name.
//
// Movable, owns the lock until destroyed. Errors are UNAVAILABLE, with the
// holder's process id, or FAILED_PRECONDITION if the path holds something else.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "engine/support/unique_fd.h"

namespace tetrad {

class SocketLock {
 public:
  static absl::StatusOr<SocketLock> Acquire(const std::string& socket_path);

 private:
  explicit SocketLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace tetrad
