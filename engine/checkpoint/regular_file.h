// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// RegularFile: a regular file held open for reading, with the promise that it stays what it was.
//
// A checkpoint is read over minutes and its parts must belong together: a file that shrinks, grows
// or is written to after it was opened fails every later read with DATA_LOSS (one that is replaced
// by rename is not affected: the old file stays open). Reads are buffered pread(2), so they work on
// every file system and at every offset. Movable; const members thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/support/unique_fd.h"

namespace tetrad {

class RegularFile {
 public:
  // Refuses all but regular files. `name` is for messages.
  static absl::StatusOr<RegularFile> Adopt(UniqueFd fd, std::string_view name);

  uint64_t bytes() const { return bytes_; }

  // The name, printable.
  const std::string& name() const { return name_; }

  // Fills `out` from byte `offset` on.
  absl::Status ReadAt(uint64_t offset, std::span<uint8_t> out) const;
  // Fills `out` with rows of `row_bytes`, which must divide its size; they begin
  // `stride` bytes apart in the file, the first at `offset`.
  absl::Status ReadRowsAt(uint64_t offset, uint64_t stride, uint64_t row_bytes,
                          std::span<uint8_t> out) const;

 private:
  // Reads without looking whether the file changed.
  absl::Status Read(uint64_t offset, std::span<uint8_t> out) const;
  absl::Status CheckUnchanged() const;

  RegularFile(UniqueFd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}

  UniqueFd fd_;
  std::string name_;
  uint64_t bytes_ = 0;
  int64_t modified_s_ = 0;
  int64_t modified_ns_ = 0;
};

// The whole of a file of at most `limit` bytes.
absl::StatusOr<std::string> ReadWhole(const RegularFile& file, uint64_t limit);

}  // namespace tetrad
