// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The token that a client shows with every call, given or read from a file. A
// file is read again when the daemon refuses what was in it, so that a token can
// be replaced under a client that runs.
//
// Thread-safe. No error and no log line quotes a token.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tetrad {

class BearerToken {
 public:
  // Both empty: none. INVALID_ARGUMENT: both given, or not what can be sent; else
  // as reading the file failed.
  static absl::StatusOr<std::unique_ptr<BearerToken>> Make(const std::string& token,
                                                           const std::string& file);

  bool empty() const { return empty_; }
  // Of the metadata `authorization`.
  std::string Header() const;
  // Changes when the token does.
  int64_t generation() const;
  // After one of `generation` was refused: whether there is another by now.
  bool Renew(int64_t generation);

 private:
  BearerToken(std::string value, std::string file);

  const bool empty_;
  const std::string file_;
  mutable std::mutex mutex_;
  std::string value_;       // guarded by mutex_
  int64_t generation_ = 0;  // guarded by mutex_
};

}  // namespace tetrad
