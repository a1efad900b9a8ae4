// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/written_ranges.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"

namespace tetrad {

bool WrittenRanges::Overlaps(const Ranges& ranges, int64_t begin, int64_t end) {
  const auto next = ranges.upper_bound(begin);
  return (next != ranges.begin() && std::prev(next)->second > begin) ||
         (next != ranges.end() && next->first < end);
}

absl::Status WrittenRanges::Reserve(const char* field, int64_t offset, int64_t bytes,
                                    int64_t max_pieces) {
  const int64_t end = offset + bytes;
  if (Overlaps(written_, offset, end)) {
    return FieldError({"chunk.offset", absl::StrCat(offset), "bytes not written before"},
                      Reason::kOperandsOverlap,
                      absl::StrCat(field, ": some of the ", bytes, " bytes at offset ", offset,
                                   " were already written"));
  }
  if (Overlaps(reserved_, offset, end)) {
    return FieldError({"chunk.offset", absl::StrCat(offset), "bytes not written by others"},
                      Reason::kOperandsOverlap,
                      absl::StrCat(field, ": some of the ", bytes, " bytes at offset ", offset,
                                   " are being written by another call"));
  }
  // What is reserved may become a piece, or nothing: joining it promises nothing.
  const auto next = written_.lower_bound(end);
  const bool joins = (next != written_.end() && next->first == end) ||
                     (next != written_.begin() && std::prev(next)->second == offset);
  const auto pieces = static_cast<int64_t>(written_.size() + reserved_.size());
  if (!joins && pieces >= max_pieces) {
    return ReasonError(
        Reason::kTooManyGaps,
        absl::StrCat(field, ": offset ", offset, " begins a new piece, and ", pieces,
                     " pieces with gaps between them are the limit; write more nearly in order"));
  }
  reserved_.emplace(offset, end);
  return absl::OkStatus();
}

void WrittenRanges::Commit(int64_t offset) {
  Ranges::node_type range = reserved_.extract(offset);
  TETRAD_CHECK(!range.empty());
  const int64_t end = range.mapped();
  auto next = written_.lower_bound(end);
  if (next != written_.end() && next->first == end) {
    range.mapped() = next->second;
    next = written_.erase(next);
  }
  if (next != written_.begin() && std::prev(next)->second == offset) {
    std::prev(next)->second = range.mapped();
  } else {
    written_.insert(next, std::move(range));
  }
}

bool WrittenRanges::Covers(int64_t bytes) const {
  return written_.size() == 1 && written_.begin()->first == 0 && written_.begin()->second == bytes;
}

int64_t WrittenRanges::written_bytes() const {
  int64_t bytes = 0;
  for (const auto& [begin, end] : written_) bytes += end - begin;
  return bytes;
}

std::vector<ByteRange> WrittenRanges::Gaps(int64_t begin, int64_t end, size_t most) const {
  std::vector<ByteRange> gaps;
  auto next = written_.upper_bound(begin);
  if (next != written_.begin()) begin = std::max(begin, std::prev(next)->second);
  for (; begin < end && gaps.size() < most; ++next) {
    const int64_t gap_end = next == written_.end() ? end : std::min(end, next->first);
    gaps.push_back({begin, gap_end - begin});
    if (next == written_.end()) break;
    begin = next->second;
  }
  return gaps;
}

int64_t WrittenRanges::first_gap() const {
  return !written_.empty() && written_.begin()->first == 0 ? written_.begin()->second : 0;
}

}  // namespace tetrad
