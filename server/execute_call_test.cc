// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/execute_call.h"

#include <gtest/gtest.h>

#include "engine/cpu_device.h"

namespace tetrad {
namespace {

// What a service works with, of the smallest size; no call is let in.
struct ClosedService {
  ClosedService() { gate.Close(); }
  const Config config;
  std::unique_ptr<Engine> engine = *Engine::Create(
      [](std::function<void()> wake) { return CpuDevice::Create({.measure_rates = false}, wake); },
      {});
  Metrics metrics;
  CallGate gate;
  ClientCalls client_calls{1};
  OpenStreams streams;
  Log log{LogFormat::kLogfmt, LogLevel::kError};
  const std::optional<Root> checkpoint_root;
  ByteBudget call_bytes{1};
  WorkerPool work{"work", 1, 1}, replies{"replies", 1, 1}, loads{"loads", 1, 1};
  const LoadTeam load_team;
  Access access{""};
  Refusals refusals{log, metrics};
  const ServiceContext context{config,
                               *engine,
                               metrics,
                               gate,
                               client_calls,
                               streams,
                               log,
                               access,
                               refusals,
                               checkpoint_root,
                               call_bytes,
                               work,
                               replies,
                               loads,
                               load_team,
                               absl::Now(),
                               Identities({{.kind = ListenAddress::Kind::kUnix}})};
};

// Without it every call takes a hop to another thread more, which no result shows.
// That the library heeds it is the library's affair.
TEST(ExecuteCallTest, ItsReactionsMayRunWhereTheLibraryIs) {
  ClosedService service;
  grpc::CallbackServerContext context;
  const v1::ExecuteRequest request;
  v1::ExecuteResponse response;
  grpc::ServerUnaryReactor* const call = StartExecute(service.context, context, request, response);
  EXPECT_TRUE(call->InternalInlineable());
  call->OnDone();  // as the library does at last
}

}  // namespace
}  // namespace tetrad
