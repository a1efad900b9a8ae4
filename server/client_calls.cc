// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/client_calls.h"

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"

namespace tetrad {

absl::Status ClientCalls::Enter(std::string_view client, Pass& pass) {
  pass.Leave();
  Shard& shard = shards_[absl::HashOf(client) % kShards];
  std::unique_lock lock(shard.mutex);
  auto found = shard.counts.find(client);
  if (found == shard.counts.end()) {
    if (shard.counts.size() >= clients_per_shard_) {
      if (shard.idle == shard.counts.end()) {
        lock.unlock();
        return Refuse(ReasonError(
            Reason::kTableFull,
            absl::StrCat("clients: calls of ", clients(), " clients are under way, the limit")));
      }
      shard.counts.erase(std::exchange(shard.idle, shard.counts.end()));
    }
    found = shard.counts.emplace(client, 0).first;
  } else if (found->second >= client_limit_) {
    lock.unlock();
    return Refuse(ReasonError(Reason::kQuota,
                              absl::StrCat("client_calls: ", client_limit_,
                                           " calls of this client are under way, the limit")));
  }
  if (found == shard.idle) shard.idle = shard.counts.end();
  ++found->second;
  pass.shard_ = &shard;
  pass.client_ = found;
  return absl::OkStatus();
}

void ClientCalls::Pass::Leave() {
  if (shard_ == nullptr) return;
  Shard& shard = *std::exchange(shard_, nullptr);
  std::lock_guard lock(shard.mutex);
  if (--client_->second > 0) return;
  if (shard.idle != shard.counts.end()) shard.counts.erase(shard.idle);
  shard.idle = client_;
}

absl::Status ClientCalls::Refuse(absl::Status status) {
  refused_.fetch_add(1, std::memory_order_relaxed);
  return status;
}

int64_t ClientCalls::entries() const {
  int64_t entries = 0;
  for (const Shard& shard : shards_) {
    std::lock_guard lock(shard.mutex);
    entries += static_cast<int64_t>(shard.counts.size());
  }
  return entries;
}

int64_t ClientCalls::clients() const {
  int64_t clients = 0;
  for (const Shard& shard : shards_) {
    std::lock_guard lock(shard.mutex);
    clients += static_cast<int64_t>(shard.counts.size());
    if (shard.idle != shard.counts.end()) --clients;
  }
  return clients;
}

}  // namespace tetrad
