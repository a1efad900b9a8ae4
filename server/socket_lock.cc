// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/socket_lock.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

absl::Status InUse(const std::string& path, const std::string& who) {
  return absl::UnavailableError(absl::StrCat("cannot listen on unix:", path, ": ", who));
}

// The process id the holder wrote, for the message only.
std::string Holder(int lock) {
  char text[24] = {};
  const ssize_t size = ::pread(lock, text, sizeof(text) - 1, 0);
  const std::string pid(text, text + std::max<ssize_t>(size, 0));
  const bool number = !pid.empty() && std::ranges::all_of(pid, [](unsigned char c) {
    return std::isdigit(c) != 0;
  });
  return absl::StrCat("a running daemon", number ? absl::StrCat(", process ", pid, ",") : "",
                      " holds the lock beside it");
}

// Whether somebody without our lock answers at the path.
bool Answers(const std::string& path) {
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  return ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 ||
         errno == EAGAIN;
}

absl::Status RemoveLeftover(const std::string& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return absl::OkStatus();
    return InUse(path, std::strerror(errno));
  }
  if (!S_ISSOCK(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot listen on unix:", path, ": a file that is no socket is there"));
  }
  if (Answers(path)) return InUse(path, "another process listens there");
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    return InUse(path, absl::StrCat("its leftover cannot be removed: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SocketLock> SocketLock::Acquire(const std::string& socket_path) {
  const std::string lock_path = absl::StrCat(socket_path, ".lock");
  UniqueFd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) {
    return InUse(socket_path, absl::StrCat("the lock file ", lock_path,
                                           " cannot be made: ", std::strerror(errno),
                                           errno == ENOENT ? " (does its folder exist?)" : ""));
  }
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return InUse(socket_path, errno == EWOULDBLOCK ? Holder(lock.get()) : std::strerror(errno));
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(lock.get(), 0) != 0 ||
      ::pwrite(lock.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return InUse(socket_path, absl::StrCat("the lock file ", lock_path,
                                           " cannot be written: ", std::strerror(errno)));
  }
  TETRAD_RETURN_IF_ERROR(RemoveLeftover(socket_path));
  return SocketLock(std::move(lock));
}

}  // namespace tetrad
