// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/free_ranges.h"

#include <iterator>
#include <utility>

#include "absl/cleanup/cleanup.h"

#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

constexpr int kOffsetBits = 36;  // in granules
constexpr int kChunkBits = 48;

bool IsGranular(int64_t bytes) { return bytes % FreeRanges::kGranuleBytes == 0; }

uint64_t Granules(int64_t bytes) {
  return static_cast<uint64_t>(bytes) / uint64_t{FreeRanges::kGranuleBytes};
}

int64_t Bytes(uint64_t granules) {
  return static_cast<int64_t>(granules) * FreeRanges::kGranuleBytes;
}

uint64_t LowBits(absl::uint128 value, int bits) {
  return absl::Uint128Low64(value) & ((uint64_t{1} << bits) - 1);
}

}  // namespace

absl::uint128 FreeRanges::PlaceKey(uint64_t chunk, int64_t end) {
  return absl::uint128(chunk) << kOffsetBits | Granules(end);
}

absl::uint128 FreeRanges::SizeKey(const Range& range) {
  return absl::uint128(Granules(range.bytes)) << (kChunkBits + kOffsetBits) |
         PlaceKey(range.chunk, range.offset);
}

FreeRanges::Range FreeRanges::FromSizeKey(absl::uint128 key) {
  return {LowBits(key >> kOffsetBits, kChunkBits), Bytes(LowBits(key, kOffsetBits)),
          Bytes(absl::Uint128Low64(key >> (kChunkBits + kOffsetBits)))};
}

FreeRanges::Range FreeRanges::FromPlace(Places::const_iterator place) {
  const auto& [key, offset] = *place;
  return {LowBits(key >> kOffsetBits, kChunkBits), offset,
          Bytes(LowBits(key, kOffsetBits)) - offset};
}

std::optional<FreeRanges::Range> FreeRanges::Take(int64_t bytes) {
  TETRAD_CHECK(bytes > 0 && IsGranular(bytes));
  if (bytes > largest_bytes()) return std::nullopt;
  auto best = by_size_.extract(by_size_.lower_bound(SizeKey({0, 0, bytes})));
  const Range whole = FromSizeKey(best.value());
  const auto place = by_end_.find(PlaceKey(whole.chunk, whole.offset + whole.bytes));
  if (whole.bytes == bytes) {
    by_end_.erase(place);
  } else {
    place->second += bytes;
    best.value() = SizeKey({whole.chunk, whole.offset + bytes, whole.bytes - bytes});
    by_size_.insert(std::move(best));
  }
  bytes_ -= bytes;
  return Range{whole.chunk, whole.offset, bytes};
}

void FreeRanges::Spare(size_t gives) {
  if (spares_.size() >= gives) return;
  if (spares_.capacity() < gives) spares_.reserve(2 * gives);
  Places places;
  std::set<absl::uint128> sizes;
  while (spares_.size() < gives) {
    places.emplace(0, 0);
    sizes.insert(0);
    spares_.push_back({places.extract(places.begin()), sizes.extract(sizes.begin())});
  }
}

FreeRanges::Range FreeRanges::Give(const Range& range) {
  TETRAD_CHECK(range.bytes > 0 && IsGranular(range.bytes));
  TETRAD_CHECK(range.offset >= 0 && IsGranular(range.offset));
  const int64_t end = range.offset + range.bytes;
  TETRAD_CHECK(Granules(end) >> kOffsetBits == 0 && range.chunk >> kChunkBits == 0);
  Range merged = range;
  Places::node_type previous_place;
  std::set<absl::uint128>::node_type size;  // of a neighbour: becomes that of the merged range
  // The first range of the chunk that ends no earlier, and the one before it.
  auto next = by_end_.lower_bound(PlaceKey(range.chunk, end));
  if (next != by_end_.begin()) {
    const auto previous = std::prev(next);
    const Range before = FromPlace(previous);
    if (before.chunk == range.chunk) {
      TETRAD_CHECK(before.offset + before.bytes <= range.offset);
      if (before.offset + before.bytes == range.offset) {
        size = by_size_.extract(SizeKey(before));
        previous_place = by_end_.extract(previous);
        merged = {range.chunk, before.offset, before.bytes + range.bytes};
      }
    }
  }
  const Range after = next == by_end_.end() ? Range{} : FromPlace(next);
  const bool in_chunk = after.bytes > 0 && after.chunk == range.chunk;
  TETRAD_CHECK(!in_chunk || end <= after.offset);
  if (in_chunk && end == after.offset) {
    size = by_size_.extract(SizeKey(after));
    next->second = merged.offset;
    merged.bytes += after.bytes;
  } else if (previous_place) {
    previous_place.key() = PlaceKey(range.chunk, end);
    by_end_.insert(next, std::move(previous_place));
  } else if (!spares_.empty()) {
    SpareNodes& spare = spares_.back();
    spare.place.key() = PlaceKey(range.chunk, end);
    spare.place.mapped() = merged.offset;
    by_end_.insert(next, std::move(spare.place));
    size = std::move(spare.size);
    spares_.pop_back();
  } else {
    const auto place = by_end_.emplace_hint(next, PlaceKey(range.chunk, end), merged.offset);
    absl::Cleanup undo = [&] { by_end_.erase(place); };
    by_size_.insert(SizeKey(merged));
    std::move(undo).Cancel();
  }
  if (size) {
    size.value() = SizeKey(merged);
    by_size_.insert(std::move(size));
  }
  bytes_ += range.bytes;
  return merged;
}

void FreeRanges::Remove(const Range& range) {
  const auto place = by_end_.find(PlaceKey(range.chunk, range.offset + range.bytes));
  TETRAD_CHECK(place != by_end_.end() && place->second == range.offset);
  by_end_.erase(place);
  by_size_.erase(SizeKey(range));
  bytes_ -= range.bytes;
}

}  // namespace tetrad
