// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The events of a world that concern leases and blocks.
#include <algorithm>

#include "engine/simulation/world.h"

namespace tetrad::simulation {

std::optional<size_t> World::SomeLease(bool live) {
  std::vector<size_t> able;
  for (size_t i = 0; i < leases_.size(); ++i) {
    if (!live || !leases_[i].ended) able.push_back(i);
  }
  if (able.empty()) return std::nullopt;
  return random_.Pick(able);
}

std::optional<size_t> World::SomeBlock() {
  std::vector<size_t> able;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i].named) able.push_back(i);
  }
  if (able.empty()) return std::nullopt;
  return random_.Pick(able);
}

bool World::Used(size_t block, int64_t begin, int64_t end, bool writing) const {
  for (const auto& request : requests_) {
    if (!request->pending()) continue;
    for (const Use& use : request->uses) {
      if (use.block == block && use.begin < end && begin < use.end && (use.written || writing)) {
        return true;
      }
    }
  }
  return false;
}

void World::Attach() {
  const size_t client = static_cast<size_t>(random_.Below(kClients));
  const auto lease = engine_->Attach(Client(client), {});
  trace_.Add(now_, "attach", client, lease.status().code());
  const int64_t live =
      std::count_if(leases_.begin(), leases_.end(), [](const Lease& l) { return !l.ended; });
  const bool full = live >= engine_->options().leases.max_leases;
  Promise(lease.ok() != full, "leases are given up to max_leases", live);
  coverage_.Count(lease.ok() ? Seen::kAttached : Seen::kAttachRefused);
  if (lease.ok()) leases_.push_back({client, lease->lease, {*lease}});
}

void World::Resume() {
  const auto index = SomeLease(random_.OneIn(2));
  if (!index) return;
  Lease& lease = leases_[*index];
  const bool foreign = random_.OneIn(6);
  const size_t client = foreign ? (lease.client + 1) % kClients : lease.client;
  const auto resumed = engine_->Attach(Client(client), lease.name);
  trace_.Add(now_, "resume", *index, client, resumed.status().code());
  const auto [want, seen] =
      lease.ended ? std::pair(absl::StatusCode::kAborted, Seen::kResumeOfEnded)
      : foreign   ? std::pair(absl::StatusCode::kPermissionDenied, Seen::kResumeOfOthers)
                  : std::pair(absl::StatusCode::kOk,
                            lease.expiry == kNever ? Seen::kResumeOfAttached : Seen::kResumed);
  Promise(resumed.status().code() == want, "a lease is resumed until it has ended",
          static_cast<int64_t>(resumed.status().code()));
  coverage_.Count(seen);
  if (want != absl::StatusCode::kOk) return;
  lease.expiry = kNever;
  lease.attachments.push_back(*resumed);
}

void World::Detach() {
  const auto index = SomeLease(!random_.OneIn(4));
  if (!index) return;
  Lease& lease = leases_[*index];
  // Mostly of the newest attachment; the end of an older one means nothing.
  const size_t last = lease.attachments.size() - 1;
  const size_t which = random_.OneIn(3) ? random_.Below(static_cast<uint32_t>(last + 1)) : last;
  engine_->Detach(lease.attachments[which]);
  trace_.Add(now_, "detach", *index, which);
  if (lease.ended || lease.expiry != kNever || which != last) return;
  lease.expiry = now_ + absl::ToInt64Nanoseconds(engine_->options().leases.grace);
  coverage_.Count(Seen::kDetached);
}

void World::EndLeaseInModel(size_t index) {
  leases_[index].ended = true;
  for (Block& block : blocks_) {
    if (block.lease == index) block.named = false;
  }
  for (Handle& handle : handles_) {
    if (handle.lease == index) handle.live = false;
  }
}

void World::EndLease() {
  const auto index = SomeLease(!random_.OneIn(6));
  if (!index) return;
  const Lease& lease = leases_[*index];
  const absl::Status status = engine_->EndLease(Client(lease.client), lease.name);
  trace_.Add(now_, "end lease", *index, status.code());
  Promise(lease.ended ? absl::IsAborted(status) : status.ok(), "a lease ends once");
  if (lease.ended) return;
  EndLeaseInModel(*index);
  coverage_.Count(Seen::kLeaseEnded);
}

void World::Allocate() {
  const auto index = SomeLease(!random_.OneIn(10));
  if (!index) return;
  const bool foreign = random_.OneIn(15);
  const size_t client = (leases_[*index].client + (foreign ? 1 : 0)) % kClients;
  const int64_t bytes =
      random_.OneIn(8) ? limits_.chunk_bytes / 2 + random_.Below(700) : 64 + 8 * random_.Below(120);
  int64_t held = 0, held_bytes = 0;
  for (const Block& block : blocks_) {
    if (!block.named || block.client != client) continue;
    ++held;
    held_bytes += static_cast<int64_t>(block.bytes.size());
  }
  const LeaseLimits& limits = engine_->options().leases;
  const bool over = held >= limits.client_blocks || bytes > limits.client_block_bytes - held_bytes;
  const absl::StatusCode want = leases_[*index].ended ? absl::StatusCode::kAborted
                                : foreign             ? absl::StatusCode::kPermissionDenied
                                : over                ? absl::StatusCode::kResourceExhausted
                                                      : absl::StatusCode::kOk;
  const int64_t strikes = strikes_;
  const auto block = engine_->Allocate(Client(client), leases_[*index].name, bytes);
  const absl::StatusCode got = block.status().code();
  trace_.Add(now_, "allocate", *index, client, bytes, got);
  if (want != absl::StatusCode::kOk) {
    Promise(got == want, "memory is allocated under a lease of the client, within its limits",
            static_cast<int64_t>(got));
    if (over) coverage_.Count(Seen::kAllocateOverQuota);
    return;
  }
  const bool ended = leases_[*index].ended;  // by now
  if (!block.ok()) {
    Promise((ended && got == absl::StatusCode::kAborted) ||
                (got == absl::StatusCode::kResourceExhausted &&
                 (profile_ != Profile::kCalm || strikes_ > strikes)) ||
                (got == absl::StatusCode::kInternal && (strikes_ > strikes || device_->lost())) ||
                (got == absl::StatusCode::kUnavailable && lossy()),
            "an allocation fails for a reason", static_cast<int64_t>(got));
    coverage_.Count(ended ? Seen::kLeaseEndedMeanwhile : Seen::kAllocateRefused);
    return;
  }
  Promise(!ended, "a lease that ends meanwhile keeps no memory");
  Promise(!lost_, "a lost device gives no memory");
  coverage_.Count(Seen::kAllocated);
  blocks_.push_back(
      {client, *index, block->block, std::vector<std::byte>(static_cast<size_t>(bytes)), !ended});
  if (!ended) CheckBlock(blocks_.size() - 1);  // zero
}

// What is in it is what must be, where nobody writes just now.
void World::CheckBlock(size_t index) {
  const Block& block = blocks_[index];
  std::vector<std::byte> got(block.bytes.size());
  const absl::Status status = engine_->Read(Client(block.client), block.name, 0, got);
  if (lossy()) return;
  Promise(status.ok(), "a block can be read", static_cast<int64_t>(status.code()));
  for (size_t i = 0; i < got.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i);
    if (got[i] == block.bytes[i] || Used(index, at, at + 1, false)) continue;
    return Promise(false, "a block holds what was written to it, zero at first", at);
  }
}

void World::ReadBlock() {
  if (const auto block = SomeBlock()) {
    trace_.Add(now_, "read block", *block);
    coverage_.Count(Seen::kBlockRead);
    CheckBlock(*block);
  }
}

void World::WriteBlock() {
  const auto index = SomeBlock();
  if (!index) return;
  const int64_t size = static_cast<int64_t>(blocks_[*index].bytes.size());
  const int64_t begin = random_.Below(size), bytes = random_.Below(size - begin + 1);
  if (Used(*index, begin, begin + bytes, true)) return;  // a client that minds its own requests
  std::vector<std::byte> data(static_cast<size_t>(bytes));
  for (std::byte& byte : data) byte = static_cast<std::byte>(random_.Next());
  const int64_t strikes = strikes_;
  const absl::Status status =
      engine_->Write(Client(blocks_[*index].client), blocks_[*index].name, begin, data);
  trace_.Add(now_, "write block", *index, begin, bytes, status.code());
  Promise(status.ok() || strikes_ > strikes || device_->lost() || lost_, "a block can be written");
  if (!status.ok()) return;
  std::copy(data.begin(), data.end(), blocks_[*index].bytes.begin() + begin);
  coverage_.Count(Seen::kBlockWritten);
}

void World::FreeBlock() {
  if (const auto block = SomeBlock()) FreeBlock(*block);
}

void World::FreeBlock(size_t index) {
  CheckBlock(index);
  const absl::Status status = engine_->Free(Client(blocks_[index].client), blocks_[index].name);
  const bool used = Used(index, 0, INT64_MAX, true);
  trace_.Add(now_, "free block", index, used, status.code());
  Promise(status.ok(), "a block can be freed");
  blocks_[index].named = false;
  coverage_.Count(used ? Seen::kBlockFreedInUse : Seen::kBlockFreed);
}

void World::ListBlocks() {
  const auto index = SomeLease(true);
  if (!index) return;
  const Lease& lease = leases_[*index];
  const auto list = engine_->ListBlocks(Client(lease.client), lease.name);
  trace_.Add(now_, "list blocks", *index, list.status().code());
  if (!list.ok()) return Promise(false, "the blocks of a lease are listed");
  size_t at = 0;
  for (const Block& block : blocks_) {
    if (!block.named || block.lease != *index) continue;
    Promise(at < list->size() && (*list)[at].block == block.name &&
                (*list)[at].bytes == static_cast<int64_t>(block.bytes.size()),
            "blocks are listed oldest first", static_cast<int64_t>(at));
    ++at;
  }
  Promise(at == list->size(), "no other blocks are listed");
}

void World::UseStaleName() {
  std::byte byte;
  trace_.Add(now_, "use names of what is not there");
  Promise(absl::IsInvalidArgument(engine_->Read("client0", "block-0", 0, {&byte, 1})),
          "what never was a name is refused");
  if (!blocks_.empty()) {
    const Block& block = random_.Pick(blocks_);
    if (!block.named) {
      coverage_.Count(Seen::kStaleName);
      const std::string client = Client(block.client);
      Promise(absl::IsAborted(engine_->Read(client, block.name, 0, {&byte, 1})) &&
                  absl::IsAborted(engine_->Write(client, block.name, 0, {&byte, 1})) &&
                  absl::IsAborted(engine_->Free(client, block.name)),
              "the name of a freed block is stale");
    } else {
      coverage_.Count(Seen::kForeignName);
      const std::string client = Client((block.client + 1) % kClients);
      Promise(absl::IsPermissionDenied(engine_->Read(client, block.name, 0, {&byte, 1})) &&
                  absl::IsPermissionDenied(engine_->Write(client, block.name, 0, {&byte, 1})) &&
                  absl::IsPermissionDenied(engine_->Free(client, block.name)),
              "a block is its client's alone");
    }
  }
  if (handles_.empty()) return;
  const Handle& handle = random_.Pick(handles_);
  if (handle.live) {
    Promise(absl::IsPermissionDenied(
                engine_->Release(Client((handle.client + 1) % kClients), handle.name)),
            "a plan handle is its client's alone");
  } else {
    Promise(absl::IsAborted(engine_->Release(Client(handle.client), handle.name)),
            "the name of a plan handle that ended is stale");
  }
}

}  // namespace tetrad::simulation
