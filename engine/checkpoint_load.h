// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Loads one projection of a checkpoint into the weights registry.
//
// The bytes are read from the files straight to where the device takes them
// from, so host memory does not depend on the size of anything. Several threads
// do that: the caller's, and helpers as far as others have time to be some. A
// load that fails or is stopped leaves nothing behind. Of several errors the one
// at the first place counts, codes before scales in each group, however many
// threads there are. Blocks on files; knows no RPC. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

#include "engine/checkpoint/dialect.h"
#include "engine/checkpoint/root.h"
#include "engine/weights.h"

namespace tetrad {

struct CheckpointSource {
  std::string directory;
  std::string pattern;
  Dialect dialect = Dialect::kAuto;
  bool ignore_input_scales = false;
};

struct CheckpointWeights {
  WeightsInfo info;
  std::vector<std::string> notes;
};

// Threads that help a load, of its own or shared between loads.
struct LoadTeam {
  int helpers = 0;  // jobs to post for one load
  // Hands a job to another thread; false: none takes it. A job may start late, even after its load
  // has ended, and then does nothing.
  std::function<bool(absl::AnyInvocable<void()>&&)> post;
};

// How many threads should read on a machine with so many processors: reading is bound by memory or
// by the link to the device long before every processor is busy.
int DefaultLoadThreads(int processors);

// Called on the caller's thread, between its pieces of work and at the end; false stops the load
// (CANCELLED).
using LoadObserver = absl::FunctionRef<bool(int64_t bytes_done, int64_t bytes_total)>;

absl::StatusOr<CheckpointWeights> LoadCheckpoint(const Root& root, const CheckpointSource& source,
                                                 const std::string& name, WeightsRegistry& registry,
                                                 const LoadTeam& team, LoadObserver observe);

}  // namespace tetrad
