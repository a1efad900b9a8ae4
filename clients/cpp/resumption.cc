// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cpp/resumption.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "absl/strings/str_cat.h"

namespace tetrad {
namespace {

constexpr absl::Duration kFirstWait = absl::Milliseconds(50);
constexpr absl::Duration kLongestWait = absl::Seconds(5);
constexpr int kDoublings = 7;  // beyond the longest

// Two clients must never draw one key, so each starts from the system's randomness.
std::mt19937_64 Seeded() {
  std::random_device device;
  std::seed_seq seed{device(), device(), device(), device(), device(), device()};
  return std::mt19937_64(seed);
}

}  // namespace

Resumption::Resumption(const CallOptions& call, const ClientOptions& options,
                       absl::Duration deadline)
    : call_(call),
      resume_(call.resume),
      patience_(options.resume_patience),
      deadline_(absl::Now() + (call.deadline > absl::ZeroDuration() ? call.deadline : deadline)),
      random_(Seeded()),
      since_(absl::Now()) {
  const uint64_t high = random_();
  key_ = absl::StrCat(absl::Hex(high, absl::kZeroPad16), absl::Hex(random_(), absl::kZeroPad16));
}

CallOptions Resumption::Attempt() const {
  CallOptions attempt = call_;
  // Zero would mean the client's own.
  attempt.deadline = std::max(deadline_ - absl::Now(), absl::Milliseconds(1));
  return attempt;
}

void Resumption::Reached(int64_t bytes) {
  if (bytes <= reached_) return;
  reached_ = bytes;
  failures_ = 0;
  Sent();
}

absl::Duration Resumption::NextWait() {
  const absl::Duration longest =
      std::min(kLongestWait, kFirstWait * (1 << std::min(failures_++, kDoublings)));
  return longest * std::uniform_real_distribution<double>(0.5, 1.0)(random_);
}

bool Resumption::Again(absl::Status& status) {
  if (!resume_ || !absl::IsUnavailable(status)) return false;
  const absl::Time next = absl::Now() + NextWait();
  if (next >= deadline_ || next - since_ > patience_) return false;
  std::mutex mutex;
  std::condition_variable_any wait;
  std::unique_lock lock(mutex);
  wait.wait_until(lock, call_.cancel, absl::ToChronoTime(next), [] { return false; });
  if (!call_.cancel.stop_requested()) return true;
  status = absl::CancelledError("cancelled by the caller");
  return false;
}

}  // namespace tetrad
