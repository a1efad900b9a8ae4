// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/socket_permissions.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <grp.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "engine/support/unique_fd.h"
#include "server/status.h"

namespace tetrad {
namespace {

constexpr mode_t kOwner = 0600;

absl::Status Failed(const std::string& path, const std::string& what) {
  const int error = errno;
  const std::string message =
      absl::StrCat("unix:", ErrorText(path, 300), ": ", what, ": ", std::strerror(error));
  return error == EPERM || error == EACCES ? absl::PermissionDeniedError(message)
                                           : absl::UnavailableError(message);
}

}  // namespace

absl::StatusOr<SocketPermissions> SocketPermissions::Of(const Config& config) {
  SocketPermissions permissions;
  const std::string& text = config.socket_mode;
  unsigned mode = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mode, 8);
  if (error != std::errc() || end != text.data() + text.size() || mode > 0777 ||
      (mode & kOwner) != kOwner) {
    return absl::InvalidArgumentError(
        absl::StrCat("socket_mode: '", ErrorText(text, 40),
                     "' is not octal in [0600, 0777], with reading and writing for the owner"));
  }
  permissions.mode = static_cast<mode_t>(mode);
  if (config.socket_group.empty()) return permissions;
  permissions.group_name = ErrorText(config.socket_group, 100);
  struct group entry {};
  struct group* found = nullptr;
  std::vector<char> buffer(64 << 10);
  ::getgrnam_r(config.socket_group.c_str(), &entry, buffer.data(), buffer.size(), &found);
  if (found == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("socket_group: no group is called '", permissions.group_name, "'"));
  }
  permissions.group = entry.gr_gid;
  return permissions;
}

// By a descriptor of the socket, so that nobody can put something else there
// between these steps.
absl::Status SocketPermissions::Apply(const std::string& path) const {
  const UniqueFd socket(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!socket || ::fstat(socket.get(), &info) != 0) return Failed(path, "cannot be opened");
  if (!S_ISSOCK(info.st_mode)) {
    return absl::UnavailableError(absl::StrCat("unix:", ErrorText(path, 300), ": is no socket"));
  }
  if (group.has_value() &&
      ::fchownat(socket.get(), "", static_cast<uid_t>(-1), *group, AT_EMPTY_PATH) != 0) {
    return Failed(path, absl::StrCat("socket_group: it cannot be given to '", group_name, "'"));
  }
  const std::string self = absl::StrCat("/proc/self/fd/", socket.get());
  if (::chmod(self.c_str(), mode) != 0) return Failed(path, "socket_mode: it cannot be set");
  return absl::OkStatus();
}

}  // namespace tetrad
