// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// TokenSource: the bearer token of a client, given or in a file that somebody
// replaces from time to time. The file is read again when it changed; while it
// is gone or holds no token the last one stays, and the daemon says when that
// is no longer good.
//
// Thread-safe. Errors never contain the token.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include <sys/stat.h>

#include "absl/status/statusor.h"

namespace tetrad {

// Letters, digits and -._~+/ followed by any number of = (RFC 6750), at most 1024.
bool IsToken(std::string_view text);

class TokenSource {
 public:
  // One of both is given. INVALID_ARGUMENT: both are, no token, or no file that holds one.
  static absl::StatusOr<std::unique_ptr<TokenSource>> Open(std::string token, std::string file);
  std::string Get();

 private:
  TokenSource(std::string token, std::string file)
      : file_(std::move(file)), token_(std::move(token)) {}
  bool Changed();  // holds mutex_
  bool Read();     // holds mutex_

  const std::string file_;  // empty: the token is fixed
  std::mutex mutex_;
  std::string token_;    // guarded by mutex_
  struct stat seen_ {};  // guarded by mutex_
};

}  // namespace tetrad
