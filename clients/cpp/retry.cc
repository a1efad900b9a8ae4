// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cpp/retry.h"

#include <algorithm>
#include <array>

#include "clients/cpp/error_info.h"

namespace tetrad {
namespace {

using enum Repeat;

constexpr std::array kRules = std::to_array<RetryRule>({
    // Reads.
    {Rpc::kGetStatus, "tetrad.v1.Status.GetStatus", kAlways},
    // A stream of data; Client::Upload goes on where it broke, which is not this.
    {Rpc::kUpload, "tetrad.v1.Weights.Upload", kNever},
    // Reads.
    {Rpc::kGetUpload, "tetrad.v1.Weights.GetUpload", kAlways},
    // A second one is a second version, and minutes of work.
    {Rpc::kLoad, "tetrad.v1.Weights.Load", kIfRefused},
    // Of what is sealed it is an error: a lost answer would look like a failure.
    {Rpc::kSeal, "tetrad.v1.Weights.Seal", kIfRefused},
    // Reads.
    {Rpc::kListWeights, "tetrad.v1.Weights.List", kAlways},
    // A second one finds nothing, or what others have registered since.
    {Rpc::kDrop, "tetrad.v1.Weights.Drop", kIfRefused},
    // At worst a handle that nobody knows, and that ends when it was idle.
    {Rpc::kPrepare, "tetrad.v1.Gemm.Prepare", kAlways},
    // That handle would count as long as the lease lives.
    {Rpc::kPrepareInLease, "tetrad.v1.Gemm.Prepare", kIfRefused},
    // Costs the device's time, and writes its output block, each time.
    {Rpc::kExecute, "tetrad.v1.Gemm.Execute", kIfRefused},
    // Each request in it has its own answer; what to send again is for the caller.
    {Rpc::kExecuteStream, "tetrad.v1.Gemm.ExecuteStream", kNever},
    // Of what was given back it is an error.
    {Rpc::kRelease, "tetrad.v1.Gemm.Release", kIfRefused},
    // A second one is a second ticket.
    {Rpc::kSubmit, "tetrad.v1.Gemm.Submit", kIfRefused},
    // What the key is for.
    {Rpc::kSubmitWithKey, "tetrad.v1.Gemm.Submit", kAlways},
    // The outcome is kept, and the same for all who ask.
    {Rpc::kWait, "tetrad.v1.Gemm.Wait", kAlways},
    // The outcome may have gone with the answer that was lost.
    {Rpc::kWaitAndForget, "tetrad.v1.Gemm.Wait", kIfRefused},
    // Tells all it knows each time.
    {Rpc::kWatch, "tetrad.v1.Gemm.Watch", kAlways},
    // The answer to a second one is that it came too late.
    {Rpc::kCancel, "tetrad.v1.Gemm.Cancel", kIfRefused},
    // A lost answer leaves a lease that ends by itself, but counts until then.
    {Rpc::kAttach, "tetrad.v1.Memory.Attach", kIfRefused},
    // Of a lease that has ended it is an error.
    {Rpc::kDetach, "tetrad.v1.Memory.Detach", kIfRefused},
    // A second one is a second block.
    {Rpc::kAllocate, "tetrad.v1.Memory.Allocate", kIfRefused},
    // A stream of data; see kUpload.
    {Rpc::kWrite, "tetrad.v1.Memory.Write", kNever},
    // Reads.
    {Rpc::kGetWrite, "tetrad.v1.Memory.GetWrite", kAlways},
    // Reads; from the beginning.
    {Rpc::kRead, "tetrad.v1.Memory.Read", kAlways},
    // Of what was freed it is an error.
    {Rpc::kFree, "tetrad.v1.Memory.Free", kIfRefused},
    // Reads.
    {Rpc::kListBlocks, "tetrad.v1.Memory.List", kAlways},
    // A daemon that drains refuses it, and does not stop doing so.
    {Rpc::kDrain, "tetrad.v1.Admin.Drain", kNever},
    // The answer to a second one has not the level from before the first.
    {Rpc::kSetLogLevel, "tetrad.v1.Admin.SetLogLevel", kIfRefused},
    // Of a lease that has ended it is an error.
    {Rpc::kEndLease, "tetrad.v1.Admin.EndLease", kIfRefused},
});
constexpr bool InOrder() {
  for (size_t i = 0; i < kRules.size(); ++i) {
    if (static_cast<size_t>(kRules[i].rpc) != i) return false;
  }
  return kRules.size() == static_cast<size_t>(Rpc::kEndLease) + 1;
}
static_assert(InOrder(), "a rule per Rpc, in the order of the enumeration");

}  // namespace

std::span<const RetryRule> RetryRules() { return kRules; }
Repeat RepeatOf(Rpc rpc) { return kRules[static_cast<size_t>(rpc)].repeat; }

bool RetryBudget::Spend(absl::Time now) {
  const std::lock_guard lock(mutex_);
  if (now > counted_) {
    left_ = std::min<double>(kAtOnce, left_ + kPerSecond * absl::ToDoubleSeconds(now - counted_));
    counted_ = now;
  }
  if (left_ < 1) return false;
  left_ -= 1;
  return true;
}

bool CallRetries::MayRepeat(const absl::Status& status, bool sent,
                            std::optional<absl::Duration>& delay) const {
  if (repeat_ == kNever) return false;
  const std::optional<ErrorInfo> info = ErrorInfoOf(status);
  if (info.has_value()) delay = info->retry_delay;
  switch (status.code()) {
    // Without a delay it is not the daemon's: a message too large, for example.
    case absl::StatusCode::kResourceExhausted:
      return delay.has_value();
    case absl::StatusCode::kUnavailable:
      return !sent || repeat_ == kAlways || (info.has_value() && info->reason == "DRAINING");
    default:
      return false;
  }
}

std::optional<absl::Duration> CallRetries::After(const absl::Status& status, bool sent,
                                                 absl::Time now, double chance) {
  std::optional<absl::Duration> told;
  if (!OnceMore() || !MayRepeat(status, sent, told)) return std::nullopt;
  absl::Duration delay = kFirstDelay;
  for (int i = 1; i < made_ && delay < kLongestDelay; ++i) delay *= 2;
  delay = std::min(delay, kLongestDelay) * (0.5 + 0.5 * chance);
  if (told.has_value()) delay = std::max(delay, *told * (1 + 0.2 * chance));
  // The reason is worth more than DEADLINE_EXCEEDED a while later.
  if (delay >= deadline_ - now) return std::nullopt;
  return delay;
}

}  // namespace tetrad
