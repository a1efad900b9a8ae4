// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Root: the one folder below which checkpoints may be opened.
//
// Names come from clients and from index files. The kernel resolves each in one step relative to a
// descriptor of the folder (openat2 with RESOLVE_BENEATH), so no `..`, absolute path or symbolic
// link leads out, and nothing can be swapped between a check and the open. Links that stay below
// the folder work: model caches link snapshots to blobs. Opening never blocks on a FIFO.
//
// A name that can never work is INVALID_ARGUMENT, an absent file NOT_FOUND, a link that leads out
// or a file that may not be read PERMISSION_DENIED, no descriptors RESOURCE_EXHAUSTED, a kernel
// without openat2 (before 5.6) FAILED_PRECONDITION. Movable; const members thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"

#include "engine/checkpoint/regular_file.h"
#include "engine/support/unique_fd.h"

namespace tetrad {

class Root {
 public:
  // The operator's choice of folder; links are followed here, and only here, without limit.
  static absl::StatusOr<Root> Open(const std::string& path);

  // Opens the regular file `path`, relative to the folder.
  absl::StatusOr<RegularFile> OpenFile(std::string_view path) const;

 private:
  explicit Root(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
};

}  // namespace tetrad
