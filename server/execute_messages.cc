// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/execute_messages.h"

#include <optional>
#include <utility>

#include <google/protobuf/arena.h>

namespace tetrad {

class ExecuteMessages::Pair final
    : public grpc::MessageHolder<v1::ExecuteRequest, v1::ExecuteResponse> {
 public:
  explicit Pair(ExecuteMessages& owner) : owner_(owner) {}

  void Make() {
    // Made anew, not reset: an arena gives its first block to the thread that made
    // it, and the request is read by the one that is here.
    arena_.emplace(block_, sizeof(block_));
    set_request(google::protobuf::Arena::CreateMessage<v1::ExecuteRequest>(&*arena_));
    set_response(google::protobuf::Arena::CreateMessage<v1::ExecuteResponse>(&*arena_));
  }

  void Release() override {
    std::unique_ptr<Pair> self(this);
    arena_.reset();
    std::lock_guard lock(owner_.mutex_);
    if (owner_.idle_.size() < owner_.kept_) owner_.idle_.push_back(std::move(self));
  }

 private:
  ExecuteMessages& owner_;
  alignas(std::max_align_t) char block_[kBlockBytes];
  std::optional<google::protobuf::Arena> arena_;
};

ExecuteMessages::ExecuteMessages(size_t kept) : kept_(kept) { idle_.reserve(kept); }

ExecuteMessages::~ExecuteMessages() = default;

grpc::MessageHolder<v1::ExecuteRequest, v1::ExecuteResponse>* ExecuteMessages::AllocateMessages() {
  std::unique_ptr<Pair> pair;
  {
    std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      pair = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (pair == nullptr) pair = std::make_unique<Pair>(*this);
  pair->Make();
  return pair.release();  // to the RPC library, which calls Release() once
}

}  // namespace tetrad
