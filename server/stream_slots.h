// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// StreamSlots: the requests of one ExecuteStream that are under way, each from
// its message until its answer was handed to the network. Their number is
// bounded, and slots are used again with their messages' memory.
//
// Not thread-safe: its stream has a lock. A slot stays where it is as long as
// this does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tetrad/v1/gemm.pb.h"

#include "server/execute_task.h"

namespace tetrad {

struct StreamSlot {
  v1::ExecuteStreamRequest request;
  v1::ExecuteStreamResponse answer;
  std::optional<ExecuteTask> task;
  bool has_id = false;  // found by the id of its request
};

class StreamSlots {
 public:
  explicit StreamSlots(size_t limit) : limit_(limit) {}

  bool full() const { return used_ == limit_; }
  bool empty() const { return used_ == 0; }

  // For the request, which is taken over. There must be room.
  StreamSlot& Take(v1::ExecuteStreamRequest& request);
  // Finds it by its id until Forget(); false if another slot has that id.
  bool Name(StreamSlot& slot);
  void Forget(StreamSlot& slot);
  StreamSlot* Find(uint64_t id) const;
  std::vector<StreamSlot*> Named() const;
  // Its request is no longer needed, only its id.
  void DropRequest(StreamSlot& slot);
  // Gives it back.
  void Free(StreamSlot& slot);

  // Answers that wait to be written, in order.
  std::deque<StreamSlot*> ready;

 private:
  const size_t limit_;
  size_t used_ = 0;
  std::vector<std::unique_ptr<StreamSlot>> all_;
  std::vector<StreamSlot*> free_;
  absl::flat_hash_map<uint64_t, StreamSlot*> by_id_;
};

}  // namespace tetrad
