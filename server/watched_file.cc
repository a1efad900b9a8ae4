// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/watched_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "engine/support/unique_fd.h"
#include "server/status.h"

namespace tetrad {

bool WatchedFile::Look() {
  absl::StatusOr<std::string> now = Read();
  const bool same =
      now.ok() ? content_.ok() && *content_ == *now : content_.status() == now.status();
  if (!same) content_ = std::move(now);
  return !same;
}

absl::StatusOr<std::string> WatchedFile::Read() const {
  const std::string name = ErrorText(path_, 300);
  // Not waiting for somebody to write into a pipe.
  const UniqueFd fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": cannot be read: ", std::strerror(errno)));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": is not a regular file"));
  }
  std::string text(limit_bytes_ + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(fd.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": cannot be read: ", std::strerror(errno)));
    }
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size > limit_bytes_) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": is larger than the limit of ", limit_bytes_, " bytes"));
  }
  text.resize(size);
  text.shrink_to_fit();
  return text;
}

}  // namespace tetrad
