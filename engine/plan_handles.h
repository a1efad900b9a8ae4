// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// PlanHandles: what clients hold of prepared plans.
//
// A handle names a signature and the weights it was prepared with. It pins
// neither plan nor memory: an evicted plan is built again at the next use. It
// carries the generation of the process, so one from before a restart, like
// one given back, is ABORTED; another client's is PERMISSION_DENIED.
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

#include "engine/signature.h"

namespace tetrad {

struct PlanHandle {
  Signature signature;  // canonical
  std::string weights;  // reference as the client gave it
};

class PlanHandles {
 public:
  struct Limits {
    int64_t handles = 65536;
    int64_t bytes = int64_t{256} << 20;  // a signature may have very many groups
  };
  explicit PlanHandles(Limits limits);

  // RESOURCE_EXHAUSTED at either limit.
  absl::StatusOr<std::string> Add(std::string_view client, PlanHandle handle);
  absl::StatusOr<std::shared_ptr<const PlanHandle>> Find(std::string_view client,
                                                         std::string_view text) const;
  absl::Status Remove(std::string_view client, std::string_view text);
  int64_t size() const;

 private:
  struct Entry {
    std::string client;
    std::shared_ptr<const PlanHandle> handle;
    int64_t bytes() const;
  };
  // The number in a handle of this process, or ABORTED / INVALID_ARGUMENT.
  absl::StatusOr<uint64_t> Parse(std::string_view text) const;
  absl::Status Check(const Entry* entry, std::string_view client) const;

  const Limits limits_;
  const std::string prefix_;  // "plan-<generation>-"
  mutable std::mutex mutex_;
  absl::flat_hash_map<uint64_t, Entry> entries_;  // guarded by mutex_
  int64_t bytes_ = 0;                             // of entries_; guarded by mutex_
  uint64_t last_ = 0;                             // guarded by mutex_
};

}  // namespace tetrad
