// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Which call may be made again after which failure, how often and when.
//
// Not gRPC's retry policy: that knows codes, but neither the reason nor the
// delay in the error's details, and keeps every request for it in a buffer of its
// own. Below this gRPC still sends again what it knows never to have left here.
//
// A call is repeated only if that cannot be told from one call, or if it is known
// not to have begun. Steps of injected time and chance; a RetryBudget is
// thread-safe, CallRetries is of one call and its thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tetrad {

// The methods of tetrad.v1, those twice whose request makes the difference.
enum class Rpc : uint8_t {
  kGetStatus,
  kUpload,
  kGetUpload,
  kLoad,
  kSeal,
  kListWeights,
  kDrop,
  kPrepare,
  kPrepareInLease,
  kExecute,
  kExecuteStream,
  kRelease,
  kSubmit,
  kSubmitWithKey,
  kWait,
  kWaitAndForget,
  kWatch,
  kCancel,
  kAttach,
  kDetach,
  kAllocate,
  kWrite,
  kGetWrite,
  kRead,
  kFree,
  kListBlocks,
  kDrain,
  kSetLogLevel,
  kEndLease,
};

enum class Repeat : uint8_t {
  kNever,
  kIfRefused,  // if it is known not to have begun
  kAlways,     // made twice it is as made once
};

struct RetryRule {
  Rpc rpc;
  std::string_view method;  // "tetrad.v1.Gemm.Execute"
  Repeat repeat;
};
std::span<const RetryRule> RetryRules();  // in the order of Rpc
Repeat RepeatOf(Rpc rpc);

// What a client may spend on repeated calls in all, so that many that fail at once
// do not multiply the load that makes them fail.
class RetryBudget {
 public:
  static constexpr int kAtOnce = 100;
  static constexpr int kPerSecond = 10;

  // False: no call is to be repeated now.
  bool Spend(absl::Time now);

 private:
  std::mutex mutex_;
  double left_ = kAtOnce;                      // guarded by mutex_
  absl::Time counted_ = absl::InfinitePast();  // guarded by mutex_
};

// The attempts of one call.
class CallRetries {
 public:
  static constexpr absl::Duration kFirstDelay = absl::Milliseconds(100);
  static constexpr absl::Duration kLongestDelay = absl::Seconds(5);

  CallRetries(Rpc rpc, int attempts, absl::Time deadline)
      : repeat_(RepeatOf(rpc)), attempts_(attempts), deadline_(deadline) {}

  // After a failed attempt: how long to wait before the next. Nothing if `status`
  // is what the call ends with. `sent`: the daemon may have got it. `chance` in
  // [0, 1) spreads clients that failed together. The daemon's delay is the least.
  std::optional<absl::Duration> After(const absl::Status& status, bool sent, absl::Time now,
                                      double chance);
  // For a reason that is not one of `status` and needs no pause.
  bool OnceMore() { return ++made_ < attempts_; }

 private:
  bool MayRepeat(const absl::Status& status, bool sent, std::optional<absl::Duration>& delay) const;

  const Repeat repeat_;
  const int attempts_;
  const absl::Time deadline_;
  int made_ = 0;
};

}  // namespace tetrad
