// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Coverage: how often each thing happened, over all worlds. What never happens
// is not tested, whatever the number of seeds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tetrad::simulation {

// Version 14 of clang-format would move it further at every run.
// clang-format off
#define TETRAD_SIMULATED(X)                                                                  \
  X(kAttached) X(kAttachRefused) X(kResumed) X(kResumeOfAttached) X(kResumeOfEnded)          \
  X(kResumeOfOthers) X(kDetached) X(kLeaseEnded) X(kLeaseExpired) X(kLeaseEndedMeanwhile)    \
  X(kAllocated) X(kAllocateRefused) X(kAllocateOverQuota) X(kBlockWritten) X(kBlockRead)     \
  X(kBlockFreed) X(kBlockFreedInUse) X(kStaleName) X(kForeignName) X(kPrepared)              \
  X(kPreparedIdle) X(kPrepareRefused) X(kReleased) X(kHandleExpired) X(kInline) X(kInBlocks) \
  X(kByHandle) X(kBySignature) X(kPinnedVersion) X(kFromDone) X(kBadOperands) X(kQueueFull)  \
  X(kStagingOrPoolFull) X(kCannotEverFit) X(kInvalid) X(kHandleStale) X(kHandleForeign)      \
  X(kClosedOrLost) X(kWeightsMissing) X(kWeightsDoNotFit) X(kFaultAtAdmission) X(kOk)        \
  X(kOkInBlocks) X(kBadCounts) X(kCancelled) X(kCancelledOnDevice) X(kDeadlineAtAdmission)   \
  X(kDeadlineQueued) X(kDeadlineOnDevice) X(kFailed) X(kRefused) X(kShutDown) X(kDeviceLost) \
  X(kLaunchLost) X(kTimedOut) X(kHeldOutput) X(kRegistered) X(kReplaced) X(kReplacedInUse)   \
  X(kDropped) X(kDroppedInUse) X(kRegisterRefused) X(kUnsealedDropped) X(kMeanwhile)         \
  X(kQuietAndBalanced) X(kEvicted) X(kPlanShared) X(kPlanWaited) X(kPlanFailed)              \
  X(kPlanWaitedInVain) X(kPlanEvicted) X(kPlanEvictedByBytes) X(kPlanKeptOverLimit)          \
  X(kLaunchedInExecute)
// clang-format on

enum class Seen : size_t {
#define TETRAD_ENUMERATE(name) name,
  TETRAD_SIMULATED(TETRAD_ENUMERATE)
#undef TETRAD_ENUMERATE
};

inline constexpr const char* kSeenNames[] = {
#define TETRAD_NAME(name) #name,
    TETRAD_SIMULATED(TETRAD_NAME)
#undef TETRAD_NAME
};

struct Coverage {
  std::array<uint64_t, std::size(kSeenNames)> counts{};
  void Count(Seen seen) { ++counts[static_cast<size_t>(seen)]; }
};

}  // namespace tetrad::simulation
