// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// ClientCalls: how many calls each client has under way, over all its
// connections, and a limit to that.
//
// A client has an entry while it has calls, so clients that come and go leave
// nothing; one idle entry a shard is kept, which spares a client with one call
// at a time an allocation per call. Clients at once are bounded, too: what is
// beyond either limit is refused with RESOURCE_EXHAUSTED.
//
// Thread-safe: a lock per shard, held for a look-up. A Pass must not outlive its
// ClientCalls.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

namespace tetrad {

class ClientCalls {
  // Transparent, so that a look-up makes no string; iterators stay valid.
  using Counts = std::map<std::string, int64_t, std::less<>>;
  struct Shard;

 public:
  static constexpr size_t kShards = 64;

  // One call under way; it ends when the pass is destroyed.
  class Pass {
   public:
    Pass() = default;
    Pass(Pass&& other) noexcept
        : shard_(std::exchange(other.shard_, nullptr)), client_(other.client_) {}
    Pass& operator=(Pass&& other) noexcept {
      Leave();
      shard_ = std::exchange(other.shard_, nullptr);
      client_ = other.client_;
      return *this;
    }
    ~Pass() { Leave(); }

   private:
    friend class ClientCalls;
    void Leave();
    Shard* shard_ = nullptr;
    Counts::iterator client_;
  };

  // `client_limit` calls of one client; `clients_per_shard` clients at once.
  explicit ClientCalls(int64_t client_limit, size_t clients_per_shard = 1024)
      : client_limit_(client_limit), clients_per_shard_(clients_per_shard) {}

  // The call is counted in `pass` if the status is OK.
  absl::Status Enter(std::string_view client, Pass& pass);

  // Clients that have calls under way.
  int64_t clients() const;
  // Entries, idle ones included.
  int64_t entries() const;
  int64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  struct alignas(64) Shard {
    mutable std::mutex mutex;
    Counts counts;                         // guarded by mutex
    Counts::iterator idle = counts.end();  // the one without calls; guarded by mutex
  };
  absl::Status Refuse(absl::Status status);

  const int64_t client_limit_;
  const size_t clients_per_shard_;
  std::array<Shard, kShards> shards_;
  std::atomic<int64_t> refused_{0};
};

}  // namespace tetrad
