// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// GenerateLoad: the same call again and again, some at a time, until a number of
// calls or a time is reached, or somebody stops it. Calls that have begun are
// waited for, so it ends within the longest call after its limit. A failed call
// is counted by its code, never dropped, and followed by a short pause: a daemon
// that refuses is not hammered.
//
// The call is made from several threads at once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tetrad::cli {

// One call that worked: seen from here, and as the daemon states it.
struct LoadSample {
  double client_us = 0;
  double queued_us = 0;
  double device_us = 0;
  double total_us = 0;
  double share = 0;
};

struct LoadOptions {
  int in_flight = 1;
  int64_t calls = 0;  // to begin at most
  absl::Duration duration;
  std::function<absl::Time()> now = absl::Now;
  // Called now and then on the caller's thread.
  std::function<void(int64_t calls_done, absl::Duration elapsed)> progress = nullptr;
};

struct LoadErrors {
  int64_t count = 0;
  std::string first;  // message
};

struct LoadResult {
  std::vector<LoadSample> samples;
  std::map<absl::StatusCode, LoadErrors> errors;
  absl::Duration elapsed;  // first begin until last end
  bool stopped = false;

  int64_t failed() const;
};

// Calls that fail once a stop was requested were cut off by it: neither samples
// nor errors.
LoadResult GenerateLoad(const LoadOptions& options, const std::stop_token& stop,
                        const std::function<absl::Status(LoadSample& sample)>& call);

// Adds the errors of `from`.
void MergeErrors(const LoadResult& from, LoadResult& into);

}  // namespace tetrad::cli
