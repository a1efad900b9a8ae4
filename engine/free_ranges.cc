// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/free_ranges.h"

#include <iterator>

#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

bool IsGranular(int64_t bytes) { return bytes % FreeRanges::kGranuleBytes == 0; }

}  // namespace

std::optional<FreeRanges::Range> FreeRanges::Take(int64_t bytes) {
  TETRAD_CHECK(bytes > 0 && IsGranular(bytes));
  const auto best = by_size_.lower_bound({bytes, {0, 0}});
  if (best == by_size_.end()) return std::nullopt;
  const Range whole{best->place.chunk, best->place.offset, best->bytes};
  Remove(whole);
  if (whole.bytes > bytes) Insert({whole.chunk, whole.offset + bytes, whole.bytes - bytes});
  return Range{whole.chunk, whole.offset, bytes};
}

FreeRanges::Range FreeRanges::Give(const Range& range) {
  TETRAD_CHECK(range.bytes > 0 && IsGranular(range.bytes));
  TETRAD_CHECK(range.offset >= 0 && IsGranular(range.offset));
  std::optional<Range> before;
  std::optional<Range> after;
  const auto next = by_place_.lower_bound({range.chunk, range.offset});
  if (next != by_place_.end() && next->first.chunk == range.chunk) {
    TETRAD_CHECK(range.offset + range.bytes <= next->first.offset);
    if (range.offset + range.bytes == next->first.offset) {
      after = Range{range.chunk, next->first.offset, next->second};
    }
  }
  if (next != by_place_.begin()) {
    const auto previous = std::prev(next);
    const int64_t end = previous->first.offset + previous->second;
    if (previous->first.chunk == range.chunk) {
      TETRAD_CHECK(end <= range.offset);
      if (end == range.offset)
        before = Range{range.chunk, previous->first.offset, previous->second};
    }
  }
  Range merged = range;
  if (before) {
    Remove(*before);
    merged.offset = before->offset;
    merged.bytes += before->bytes;
  }
  if (after) {
    Remove(*after);
    merged.bytes += after->bytes;
  }
  Insert(merged);
  return merged;
}

void FreeRanges::Remove(const Range& range) {
  const auto found = by_place_.find({range.chunk, range.offset});
  TETRAD_CHECK(found != by_place_.end() && found->second == range.bytes);
  by_place_.erase(found);
  TETRAD_CHECK(by_size_.erase({range.bytes, {range.chunk, range.offset}}) == 1);
  bytes_ -= range.bytes;
}

void FreeRanges::Insert(const Range& range) {
  by_place_.emplace(Place{range.chunk, range.offset}, range.bytes);
  by_size_.insert({range.bytes, {range.chunk, range.offset}});
  bytes_ += range.bytes;
}

}  // namespace tetrad
