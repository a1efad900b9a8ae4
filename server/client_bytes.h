// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// ClientBytes: bytes that clients hold, up to a limit for each client and one
// for all. Like ByteBudget, but by owner, and given back by whoever drops the
// last Hold, wherever that is: memory that a slow reader still refers to counts
// until it is gone.
//
// Thread-safe. A Hold keeps its ClientBytes alive.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tetrad {

class ClientBytes : public std::enable_shared_from_this<ClientBytes> {
 public:
  struct Limits {
    int64_t all = 0;
    int64_t client = 0;
  };

  // Bytes of one client, given back when this is destroyed.
  class Hold {
   public:
    Hold() = default;
    Hold(Hold&& other) noexcept
        : from_(std::move(other.from_)),
          client_(std::move(other.client_)),
          bytes_(std::exchange(other.bytes_, 0)) {}
    Hold& operator=(Hold&& other) noexcept;
    ~Hold() { ShrinkTo(0); }

    // Refused like Take(), and nothing changes then.
    absl::Status Grow(int64_t bytes);
    void ShrinkTo(int64_t bytes);
    int64_t bytes() const { return bytes_; }

   private:
    friend class ClientBytes;
    Hold(std::shared_ptr<ClientBytes> from, std::string_view client)
        : from_(std::move(from)), client_(client) {}
    std::shared_ptr<ClientBytes> from_;
    std::string client_;
    int64_t bytes_ = 0;
  };

  // `field` names the limit in errors.
  static std::shared_ptr<ClientBytes> Create(std::string_view field, const Limits& limits);

  // RESOURCE_EXHAUSTED if the client (QUOTA) or all (TABLE_FULL) hold too much,
  // INVALID_ARGUMENT if so much could never be had.
  absl::StatusOr<Hold> Take(std::string_view client, int64_t bytes);

  int64_t used_bytes() const;
  int64_t used_bytes(std::string_view client) const;
  const Limits& limits() const { return limits_; }

 private:
  ClientBytes(std::string_view field, const Limits& limits) : field_(field), limits_(limits) {}
  absl::Status Add(std::string_view client, int64_t held, int64_t bytes);
  void Give(std::string_view client, int64_t bytes);

  const std::string field_;
  const Limits limits_;
  mutable std::mutex mutex_;
  int64_t used_ = 0;  // guarded by mutex_
  std::map<std::string, int64_t, std::less<>>
      by_client_;  // those that hold some; guarded by mutex_
};

}  // namespace tetrad
