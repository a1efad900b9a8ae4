// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cpp/small_file.h"

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tetrad {
namespace {

constexpr size_t kLargest = 1 << 20;

}  // namespace

absl::StatusOr<std::string> ReadSmallFile(std::string_view option, const std::string& path) {
  const std::string named = absl::StrCat(std::string(option), " ", path);
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return absl::ErrnoToStatus(errno, named);
  const absl::Cleanup close = [file] { ::close(file); };
  std::string text;
  char piece[4096];
  for (;;) {
    const ssize_t size = ::read(file, piece, sizeof(piece));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return absl::ErrnoToStatus(errno, named);
    if (size == 0) return text;
    text.append(piece, static_cast<size_t>(size));
    if (text.size() > kLargest) {
      return absl::FailedPreconditionError(absl::StrCat(named, ": more than ", kLargest, " bytes"));
    }
  }
}

}  // namespace tetrad
