// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// FreeRanges: the free ranges of all chunks of a pool, and which to take.
//
// Best fit over all chunks at once, so that a small gap anywhere is used before
// a large one is broken; among equal gaps the one of the lowest chunk and then
// offset, so that late chunks run empty and can go back. A range given is merged
// with its free neighbours at once; no two ranges of a chunk ever touch. Every
// offset and size is a multiple of kGranuleBytes; a chunk is less than 2^44 bytes
// and has a number below 2^48.
//
// Each call costs O(log ranges). Only a Give() that merges with nothing needs
// host memory, and none for which Spare() made it ahead; if that is lacking it throws
// and changes nothing, which Abseil's faster trees do not promise. Not thread-safe. Giving what is
// free already is a bug of the caller and ends the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/numeric/int128.h"

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
  // So many calls of Give() will need no host memory. Throws where that is lacking.
  void Spare(size_t gives);
  // The free range that holds `range` from now on, neighbours included.
  Range Give(const Range& range);
  // Takes exactly this free range, as Give() returned it.
  void Remove(const Range& range);

  int64_t bytes() const { return bytes_; }
  int64_t largest_bytes() const {
    return by_size_.empty() ? 0 : FromSizeKey(*by_size_.rbegin()).bytes;
  }
  size_t count() const { return by_size_.size(); }

 private:
  using Places = std::map<absl::uint128, int64_t>;
  // Keys are numbers, so that a comparison is one: chunk and end of a range, and
  // bytes, chunk and offset.
  static absl::uint128 PlaceKey(uint64_t chunk, int64_t end);
  static absl::uint128 SizeKey(const Range& range);
  static Range FromSizeKey(absl::uint128 key);
  static Range FromPlace(Places::const_iterator place);

  // Where each range starts, by its end: what is taken from the front of a range
  // or given in front of it does not move it.
  Places by_end_;
  std::set<absl::uint128> by_size_;  // the same ranges
  // Nodes of them, of no range.
  struct SpareNodes {
    Places::node_type place;
    std::set<absl::uint128>::node_type size;
  };
  std::vector<SpareNodes> spares_;
  int64_t bytes_ = 0;  // of all ranges
};

}  // namespace tetrad
