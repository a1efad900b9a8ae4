// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// ChildDaemon: a tetradd process of its own on a Unix socket in a temporary
// folder. The destructor stops it and waits; the folder goes too. One thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

#include "absl/status/statusor.h"

namespace tetrad::bars {

class ChildDaemon {
 public:
  // Starts `program` with `flags` and waits until it answers. UNAVAILABLE holds
  // the end of its log where it did not.
  static absl::StatusOr<std::unique_ptr<ChildDaemon>> Start(const std::string& program,
                                                            const std::vector<std::string>& flags);
  ~ChildDaemon();
  ChildDaemon(const ChildDaemon&) = delete;

  std::string endpoint() const;  // unix:PATH

 private:
  explicit ChildDaemon(std::string folder) : folder_(std::move(folder)) {}
  absl::Status Spawn(const std::string& program, const std::vector<std::string>& flags);
  absl::Status WaitUntilReady();
  bool Ended();  // and was waited for
  std::string EndOfLog() const;

  const std::string folder_;
  pid_t pid_ = -1;
};

}  // namespace tetrad::bars
