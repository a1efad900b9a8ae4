// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/root.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "engine/checkpoint/printable.h"
#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

std::string ErrnoText(int error) { return std::generic_category().message(error); }

// Refuses, before the kernel is asked, what can never be right, with a reason of its own.
absl::Status CheckName(std::string_view path) {
  const auto invalid = [&](const char* reason) {
    return FieldError({"directory", Printable(path), "a path below the checkpoint root"},
                      Reason::kFieldMalformed,
                      absl::StrCat("path `", Printable(path), "`: ", reason));
  };
  if (path.empty()) return invalid("empty");
  if (path.size() >= 4096) return invalid("longer than 4095 bytes");
  if (path.front() == '/') return invalid("must be relative to the allowed folder");
  if (path.find('\0') != std::string_view::npos) return invalid("contains a NUL byte");
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (path.substr(begin, end - begin) == "..") return invalid("`..` is not allowed");
    begin = end + 1;
  }
  return absl::OkStatus();
}

absl::Status OpenError(std::string_view path, int error) {
  const auto refuse = [path](Reason reason, std::string_view what) {
    return FieldError({"directory", Printable(path)}, reason,
                      absl::StrCat("path `", Printable(path), "`: ", std::string(what)));
  };
  switch (error) {
    case EXDEV:
      return refuse(Reason::kNotAllowed, "leads out of the allowed folder");
    case ENOENT:
      return refuse(Reason::kFileNotFound, ErrnoText(error));
    case EACCES:
    case EPERM:
      return refuse(Reason::kNotAllowed, ErrnoText(error));
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return refuse(Reason::kHostMemory, ErrnoText(error));
    case ENOSYS:
      return refuse(Reason::kUnsupportedHere, "openat2 is missing; Linux 5.6 or newer");
    default:
      return refuse(Reason::kFieldMalformed, ErrnoText(error));
  }
}

// A descriptor, or -errno.
int OpenBeneath(int root, const std::string& path) {
  open_how how{};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;  // never waits for a FIFO's writer
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  // EAGAIN: a rename elsewhere raced with a `..` inside a link; the kernel asks to try again.
  constexpr int kTries = 64;
  for (int i = 0; i < kTries; ++i) {
    const long fd = syscall(SYS_openat2, root, path.c_str(), &how, sizeof how);
    if (fd >= 0) return static_cast<int>(fd);
    if (errno != EAGAIN && errno != EINTR) break;
  }
  return -errno;
}

}  // namespace

absl::StatusOr<Root> Root::Open(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd) {
    const int error = errno;
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint root `", Printable(path), "`: ", ErrnoText(error)));
  }
  return Root(std::move(fd));
}

absl::StatusOr<RegularFile> Root::OpenFile(std::string_view path) const {
  TETRAD_RETURN_IF_ERROR(CheckName(path));
  const int fd = OpenBeneath(fd_.get(), std::string(path));
  if (fd < 0) return OpenError(path, -fd);
  return RegularFile::Adopt(UniqueFd(fd), path);
}

}  // namespace tetrad
