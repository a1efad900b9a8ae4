// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/regular_file.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "engine/checkpoint/printable.h"
#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

std::string ErrnoText(int error) { return std::generic_category().message(error); }

}  // namespace

absl::StatusOr<RegularFile> RegularFile::Adopt(UniqueFd fd, std::string_view name) {
  RegularFile file(std::move(fd), Printable(name));
  struct stat info {};
  if (fstat(file.fd_.get(), &info) != 0) {
    const int error = errno;
    return ReasonError(Reason::kInternal, absl::StrCat(file.name_, ": fstat: ", ErrnoText(error)));
  }
  if (!S_ISREG(info.st_mode)) {
    return ReasonError(Reason::kIllegalCheckpoint,
                       absl::StrCat(file.name_, ": not a regular file"));
  }
  file.bytes_ = static_cast<uint64_t>(info.st_size);
  file.modified_s_ = info.st_mtim.tv_sec;
  file.modified_ns_ = info.st_mtim.tv_nsec;
  return file;
}

absl::Status RegularFile::ReadAt(uint64_t offset, std::span<uint8_t> out) const {
  TETRAD_RETURN_IF_ERROR(Read(offset, out));
  return CheckUnchanged();
}

absl::Status RegularFile::ReadRowsAt(uint64_t offset, uint64_t stride, uint64_t row_bytes,
                                     std::span<uint8_t> out) const {
  for (; !out.empty(); out = out.subspan(row_bytes), offset += stride) {
    TETRAD_RETURN_IF_ERROR(Read(offset, out.first(row_bytes)));
  }
  return CheckUnchanged();
}

absl::Status RegularFile::Read(uint64_t offset, std::span<uint8_t> out) const {
  if (offset > bytes_ || out.size() > bytes_ - offset) {
    return ReasonError(Reason::kIllegalCheckpoint,
                       absl::StrCat(name_, ": bytes ", offset, " to ", offset + out.size(),
                                    " wanted of ", bytes_));
  }
  constexpr size_t kChunkBytes = size_t{16} << 20;  // bounds one call's uninterruptible time
  while (!out.empty()) {
    const ssize_t got =
        pread(fd_.get(), out.data(), std::min(out.size(), kChunkBytes), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int error = errno;
      return ReasonError(Reason::kFileUnreadable,
                         absl::StrCat(name_, ": read at byte ", offset, ": ", ErrnoText(error)));
    }
    if (got == 0) {
      return ReasonError(
          Reason::kFileUnreadable,
          absl::StrCat(name_, ": ends at byte ", offset, ", had ", bytes_, " when it was opened"));
    }
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return absl::OkStatus();
}

absl::Status RegularFile::CheckUnchanged() const {
  struct stat now {};
  if (fstat(fd_.get(), &now) != 0) {
    const int error = errno;
    return ReasonError(Reason::kInternal, absl::StrCat(name_, ": fstat: ", ErrnoText(error)));
  }
  if (static_cast<uint64_t>(now.st_size) != bytes_ || now.st_mtim.tv_sec != modified_s_ ||
      now.st_mtim.tv_nsec != modified_ns_) {
    return ReasonError(Reason::kFileUnreadable,
                       absl::StrCat(name_, ": changed since it was opened (", bytes_,
                                    " bytes then, ", now.st_size, " now)"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadWhole(const RegularFile& file, uint64_t limit) {
  if (file.bytes() > limit) {
    return ReasonError(Reason::kIllegalCheckpoint,
                       absl::StrCat(file.name(), ": ", file.bytes(), " bytes, limit ", limit));
  }
  std::string text(file.bytes(), '\0');
  TETRAD_RETURN_IF_ERROR(file.ReadAt(0, {reinterpret_cast<uint8_t*>(text.data()), text.size()}));
  return text;
}

}  // namespace tetrad
