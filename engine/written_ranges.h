// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// WrittenRanges: which bytes of an operand were written, and which are just being
// written, when several threads write different ranges of it.
//
// A range is reserved before its bytes are copied, then committed, or released
// if the copy failed; only Reserve() can fail or allocates. Neighbours merge once
// committed, so that an upload in order holds just one range. Offsets and sizes
// are bytes, within the operand and not empty, which the caller has checked.
//
// Not thread-safe: the copies are what runs at once, not the calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"

namespace tetrad {

struct ByteRange {
  int64_t offset = 0;
  int64_t bytes = 0;
  bool operator==(const ByteRange&) const = default;
};

class WrittenRanges {
 public:
  // INVALID_ARGUMENT: some of the bytes were written or reserved before.
  // RESOURCE_EXHAUSTED: it begins a new piece and `max_pieces` are held. Errors
  // begin with `field`.
  absl::Status Reserve(const char* field, int64_t offset, int64_t bytes, int64_t max_pieces);
  // Of what was reserved at `offset`.
  void Commit(int64_t offset);
  void Release(int64_t offset) { reserved_.erase(offset); }

  bool copying() const { return !reserved_.empty(); }
  // Where the first copy under way begins.
  int64_t first_copy() const { return reserved_.begin()->first; }
  // Whether all of [0, bytes) was committed.
  bool Covers(int64_t bytes) const;
  int64_t written_bytes() const;
  // The first byte that was not committed.
  int64_t first_gap() const;
  // What of [begin, end) was not committed, ascending; the first `most` ranges.
  std::vector<ByteRange> Gaps(int64_t begin, int64_t end, size_t most) const;

 private:
  using Ranges = std::map<int64_t, int64_t>;  // begin -> end
  static bool Overlaps(const Ranges& ranges, int64_t begin, int64_t end);

  Ranges written_;  // merged
  Ranges reserved_;
};

}  // namespace tetrad
