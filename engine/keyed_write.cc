// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/keyed_write.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"

namespace tetrad {

absl::StatusOr<KeyedWrite::Turn> KeyedWrite::Join(std::string_view key, int64_t offset,
                                                  std::function<void()> taken_over) {
  std::string name(key);
  std::function<void()> older;
  uint64_t turn = 0;
  {
    std::lock_guard lock(mutex_);
    const bool same = key_ == key;
    if (same && (offset < progress_.offset || offset > progress_.offset + progress_.bytes)) {
      return ReasonError(
          Reason::kKeyReused,
          absl::StrCat("write_key: its write began at ", progress_.offset, " and has ",
                       progress_.bytes, " bytes; it cannot go on at offset ", offset));
    }
    older = std::exchange(taken_over_, std::move(taken_over));
    turn = ++turn_;
    if (!same) {
      key_ = std::move(name);
      first_turn_ = turn;
      progress_ = {.offset = offset, .bytes = 0};
      older = nullptr;  // it writes on, under a key of its own
    }
    progress_.under_way = true;
  }
  if (older) older();
  // What the older stream copies meanwhile still counts, so the count is cut after it.
  std::lock_guard copies(copying_);
  std::lock_guard lock(mutex_);
  if (turn == turn_) progress_.bytes = offset - progress_.offset;
  return Turn{turn};
}

absl::Status KeyedWrite::Append(Turn turn, int64_t bytes, absl::FunctionRef<absl::Status()> copy) {
  const auto number = static_cast<uint64_t>(turn);
  std::unique_lock copies(copying_);
  bool counts = false;
  {
    std::lock_guard lock(mutex_);
    counts = number >= first_turn_;
    if (counts && number != turn_) {
      return ReasonError(Reason::kTakenOver, "write_key: a newer stream goes on with this write");
    }
  }
  if (!counts) {
    copies.unlock();  // another write of the block: neither waits for the other
    return copy();
  }
  TETRAD_RETURN_IF_ERROR(copy());
  std::lock_guard lock(mutex_);
  if (number >= first_turn_) progress_.bytes += bytes;
  return absl::OkStatus();
}

void KeyedWrite::Leave(Turn turn) {
  std::function<void()> done;
  std::lock_guard lock(mutex_);
  if (static_cast<uint64_t>(turn) != turn_) return;
  done = std::move(taken_over_);
  taken_over_ = nullptr;
  progress_.under_way = false;
}

absl::StatusOr<WriteProgress> KeyedWrite::Find(std::string_view key) const {
  std::lock_guard lock(mutex_);
  if (key_.empty() || key_ != key) {
    return ReasonError(Reason::kUploadNotFound,
                       "write_key: not that of the last write of this block with a key");
  }
  return progress_;
}

}  // namespace tetrad
