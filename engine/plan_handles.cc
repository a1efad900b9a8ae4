// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/plan_handles.h"

#include <charconv>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

constexpr std::string_view kKind = "plan-";

std::string MakePrefix() {
  std::random_device random;
  const uint64_t generation = uint64_t{random()} << 32 | random();
  return absl::StrCat("plan-", absl::Hex(generation, absl::kZeroPad16), "-");
}

absl::Status Stale() {
  return absl::AbortedError(
      "plan: the handle was given back or is of an earlier daemon; prepare again");
}

}  // namespace

int64_t PlanHandles::Entry::bytes() const {
  return static_cast<int64_t>(sizeof(Entry) + sizeof(PlanHandle) + client.size() +
                              handle->weights.size() +
                              handle->signature.groups.size() * sizeof(GroupShape));
}

PlanHandles::PlanHandles(Limits limits) : limits_(limits), prefix_(MakePrefix()) {}

absl::StatusOr<std::string> PlanHandles::Add(std::string_view client, PlanHandle handle) {
  Entry entry{std::string(client), std::make_shared<const PlanHandle>(std::move(handle))};
  const int64_t bytes = entry.bytes();
  std::lock_guard lock(mutex_);
  if (static_cast<int64_t>(entries_.size()) >= limits_.handles) {
    return absl::ResourceExhaustedError(
        absl::StrCat("max_plan_handles: ", entries_.size(), " handles are held, the limit"));
  }
  if (bytes > limits_.bytes - bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat("plan handles: ", bytes, " bytes wanted, ",
                                                     limits_.bytes - bytes_, " of ", limits_.bytes,
                                                     " left; release some"));
  }
  bytes_ += bytes;
  const uint64_t number = ++last_;
  entries_.emplace(number, std::move(entry));
  return absl::StrCat(prefix_, number);
}

absl::StatusOr<uint64_t> PlanHandles::Parse(std::string_view text) const {
  if (!text.starts_with(kKind)) {
    return absl::InvalidArgumentError("plan: not a handle that Prepare returned");
  }
  uint64_t number = 0;
  if (!text.starts_with(prefix_)) return Stale();
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + prefix_.size(), end, number);
  if (error != std::errc() || stop != end) {
    return absl::InvalidArgumentError("plan: not a handle that Prepare returned");
  }
  return number;
}

absl::Status PlanHandles::Check(const Entry* entry, std::string_view client) const {
  if (entry == nullptr) return Stale();
  if (entry->client != client) {
    return absl::PermissionDeniedError("plan: the handle belongs to another client");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const PlanHandle>> PlanHandles::Find(std::string_view client,
                                                                    std::string_view text) const {
  TETRAD_ASSIGN_OR_RETURN(const uint64_t number, Parse(text));
  std::lock_guard lock(mutex_);
  const auto at = entries_.find(number);
  TETRAD_RETURN_IF_ERROR(Check(at == entries_.end() ? nullptr : &at->second, client));
  return at->second.handle;
}

absl::Status PlanHandles::Remove(std::string_view client, std::string_view text) {
  TETRAD_ASSIGN_OR_RETURN(const uint64_t number, Parse(text));
  std::lock_guard lock(mutex_);
  const auto at = entries_.find(number);
  TETRAD_RETURN_IF_ERROR(Check(at == entries_.end() ? nullptr : &at->second, client));
  bytes_ -= at->second.bytes();
  entries_.erase(at);
  return absl::OkStatus();
}

int64_t PlanHandles::size() const {
  std::lock_guard lock(mutex_);
  return static_cast<int64_t>(entries_.size());
}

}  // namespace tetrad
