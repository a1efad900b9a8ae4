// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The commands of tetradctl, each a function of a connection and its options.
// They return an exit code (exit_code.h), or the status that stopped them,
// which the caller prints; results go to `output` only once they are complete.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"

#include "clients/cli/arguments.h"
#include "clients/cli/output.h"
#include "clients/cpp/client.h"

namespace tetrad::cli {

struct Session {
  Client& client;
  const Output& output;
  CallOptions call;  // deadline, cancellation and trace of every call
};

absl::StatusOr<int> Run(const Session& session, const StatusCommand& command);
absl::StatusOr<int> Run(const Session& session, const WeightsLoadCommand& command);
absl::StatusOr<int> Run(const Session& session, const WeightsListCommand& command);
absl::StatusOr<int> Run(const Session& session, const WeightsDropCommand& command);
absl::StatusOr<int> Run(const Session& session, const PlanCommand& command);
absl::StatusOr<int> Run(const Session& session, const RunCommand& command);
absl::StatusOr<int> Run(const Session& session, const VerifyCommand& command);
absl::StatusOr<int> Run(const Session& session, const BenchCommand& command);
absl::StatusOr<int> Run(const Session& session, const WeightsSealCommand& command);
absl::StatusOr<int> Run(const Session& session, const DrainCommand& command);
absl::StatusOr<int> Run(const Session& session, const LogLevelCommand& command);
absl::StatusOr<int> Run(const Session& session, const EndLeaseCommand& command);

// Runs a whole command line: parse, connect, execute, report. Results that
// could not be written are a failure.
int Main(std::vector<std::string> arguments, const Output& output, std::stop_token cancel);

}  // namespace tetrad::cli
