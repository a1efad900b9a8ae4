// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// SocketPermissions: mode and group of Unix sockets. A socket is created for
// its owner alone (PrivateFiles) and then opened as far as asked, so that it is
// never open further. Plain values; errors name the option.
#pragma once

#include <optional>
#include <string>

#include <sys/stat.h>
#include <sys/types.h>

#include "absl/status/statusor.h"

#include "server/config.h"

namespace tetrad {

struct SocketPermissions {
  mode_t mode = 0600;
  std::optional<gid_t> group = {};
  std::string group_name = {};

  // INVALID_ARGUMENT: no octal mode in [0600, 0777] that lets the daemon's user
  // read and write, or no such group.
  static absl::StatusOr<SocketPermissions> Of(const Config& config);
  // PERMISSION_DENIED, UNAVAILABLE: the daemon may not do it, or it is no socket.
  absl::Status Apply(const std::string& path) const;
};

// Creates files for this user only while it lives. Of the whole process, so
// only for the moment of binding, when nothing else creates files.
class PrivateFiles {
 public:
  PrivateFiles() : before_(::umask(0177)) {}
  ~PrivateFiles() { ::umask(before_); }
  PrivateFiles(const PrivateFiles&) = delete;
  PrivateFiles& operator=(const PrivateFiles&) = delete;

 private:
  const mode_t before_;
};

}  // namespace tetrad
