// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What every service works with. All of it outlives the RPC server.
#pragma once

#include <optional>

#include "absl/time/time.h"

#include "engine/checkpoint/root.h"
#include "engine/checkpoint_load.h"
#include "engine/engine.h"
#include "engine/support/byte_budget.h"
#include "server/access.h"
#include "server/call_gate.h"
#include "server/client_calls.h"
#include "server/config.h"
#include "server/identity.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/open_streams.h"
#include "server/refusals.h"
#include "server/request_id.h"
#include "server/worker_pool.h"

namespace tetrad {

struct ServiceContext {
  const Config& config;
  Engine& engine;
  Metrics& metrics;
  CallGate& gate;
  ClientCalls& client_calls;
  OpenStreams& streams;
  Log& log;
  Access& access;
  Refusals& refusals;
  const std::optional<Root>& checkpoint_root;
  ByteBudget& call_bytes;     // requests and replies of Execute calls, pieces of blocks
  WorkerPool& work;           // whatever copies much or looks at every byte
  WorkerPool& replies;        // outputs of finished launches
  WorkerPool& loads;          // checkpoints
  const LoadTeam& load_team;  // helps those
  absl::Time started;
  const Identities identities;
  // Giving out an id changes nothing that a service could see.
  mutable RequestIds request_ids{started};
};

}  // namespace tetrad
