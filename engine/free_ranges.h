// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// FreeRanges: the free ranges of all chunks of a pool, and which to take.
//
// Best fit over all chunks at once, so that a small gap anywhere is used before
// a large one is broken; among equal gaps the one of the lowest chunk and then
// offset, so that late chunks run empty and can go back. A range given is merged
// with its free neighbours at once; no two ranges of a chunk ever touch. Every
// offset and size is a multiple of kGranuleBytes.
//
// Each call costs O(log ranges). Not thread-safe. Giving what is free already is
// a bug of the caller and ends the program.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"

namespace tetrad {

class FreeRanges {
 public:
  static constexpr int64_t kGranuleBytes = 256;

  struct Range {
    uint64_t chunk = 0;
    int64_t offset = 0;
    int64_t bytes = 0;
    bool operator==(const Range&) const = default;
  };

  // The front `bytes` of the best range; none if every range is smaller.
  std::optional<Range> Take(int64_t bytes);
  // The free range that holds `range` from now on, neighbours included.
  Range Give(const Range& range);
  // Takes exactly this free range, as Give() returned it.
  void Remove(const Range& range);

  int64_t bytes() const { return bytes_; }
  int64_t largest_bytes() const { return by_size_.empty() ? 0 : by_size_.rbegin()->bytes; }
  size_t count() const { return by_place_.size(); }

 private:
  struct Place {
    uint64_t chunk;
    int64_t offset;
    auto operator<=>(const Place&) const = default;
  };
  struct Sized {
    int64_t bytes;
    Place place;
    auto operator<=>(const Sized&) const = default;
  };
  void Insert(const Range& range);

  absl::btree_map<Place, int64_t> by_place_;  // the bytes of each range
  absl::btree_set<Sized> by_size_;            // the same ranges
  int64_t bytes_ = 0;                         // of all ranges
};

}  // namespace tetrad
