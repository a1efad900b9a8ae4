// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// WatchedFile: a file that is read again and again, and whose content counts as
// changed when its bytes did: not fooled by times that stand still, nor by links
// that are turned over. That it cannot be read, or is read again, is a change as
// well, so that each is told once.
//
// For one thread. Errors are INVALID_ARGUMENT and name the file.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace tetrad {

class WatchedFile {
 public:
  WatchedFile(std::string path, size_t limit_bytes)
      : path_(std::move(path)), limit_bytes_(limit_bytes) {}

  // Reads it; whether that gave something else than the last time.
  bool Look();
  // What the last look gave.
  const absl::StatusOr<std::string>& content() const { return content_; }
  const std::string& path() const { return path_; }

 private:
  absl::StatusOr<std::string> Read() const;

  std::string path_;
  size_t limit_bytes_;
  absl::StatusOr<std::string> content_ = absl::UnknownError("not yet read");
};

}  // namespace tetrad
