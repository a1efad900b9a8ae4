// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// ExecuteMessages: request and reply of each Execute, on a piece of memory that
// the next one uses again.
//
// A small request has a dozen parts that would each come from the heap on one
// thread and go back on another. Here they lie in an arena over one block, and
// the RPC library asks for the pair before it reads the request and gives it
// back when the call is over. What does not fit the block, text of more than a few
// bytes, and what another thread than the reader adds come from the heap and go back
// there with the call: of one that is over, nothing but the block is kept, and of
// those at most `kept`.
//
// Thread-safe. Outlives the calls, so the RPC server.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "grpcpp/support/message_allocator.h"
#include "tetrad/v1/gemm.pb.h"

namespace tetrad {

class ExecuteMessages final
    : public grpc::MessageAllocator<v1::ExecuteRequest, v1::ExecuteResponse> {
 public:
  // Room for both messages of a request with its operands in blocks.
  static constexpr size_t kBlockBytes = 4 << 10;

  // As many as calls are likely to be under way.
  explicit ExecuteMessages(size_t kept = 64);
  ~ExecuteMessages() override;

  // Both empty.
  grpc::MessageHolder<v1::ExecuteRequest, v1::ExecuteResponse>* AllocateMessages() override;

 private:
  class Pair;

  std::mutex mutex_;
  const size_t kept_;
  std::vector<std::unique_ptr<Pair>> idle_;  // guarded by mutex_; never grows
};

}  // namespace tetrad
