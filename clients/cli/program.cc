// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

#include "clients/cli/commands.h"
#include "clients/cli/exit_code.h"
#include "clients/cpp/endpoint.h"

namespace tetrad::cli {
namespace {

absl::StatusOr<int> Dispatch(const Command& command, const Session& session) {
  return std::visit(
      [&session](const auto& chosen) -> absl::StatusOr<int> {
        if constexpr (std::is_same_v<std::decay_t<decltype(chosen)>, HelpText>) {
          return kExitOk;  // answered before a connection was made
        } else {
          return Run(session, chosen);
        }
      },
      command);
}

int Fail(const Output& output, const absl::Status& status, int code) {
  output.PrintError(status);
  return code;
}

int Execute(std::vector<std::string> arguments, const Output& output, std::stop_token cancel) {
  const absl::StatusOr<Invocation> invocation = ParseArguments(std::move(arguments));
  if (!invocation.ok()) return Fail(output, invocation.status(), kExitUsage);
  if (const auto* help = std::get_if<HelpText>(&invocation->command)) {
    output.PrintText(help->text);
    return kExitOk;
  }
  const GlobalOptions& global = invocation->global;
  if (const auto endpoint = ParseEndpoint(global.endpoint); !endpoint.ok()) {
    return Fail(output, endpoint.status(), kExitUsage);
  }
  ClientOptions options;
  options.tls = global.tls;
  options.token = global.token;
  options.token_file = global.token_file;
  if (global.timeout > absl::ZeroDuration()) {
    options.connect_timeout = std::min(options.connect_timeout, global.timeout);
  }
  const absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(global.endpoint, options);
  if (!client.ok()) return Fail(output, client.status(), kExitDaemon);

  const Session session{**client, output, CallOptions{global.timeout, cancel, global.traceparent}};
  const absl::StatusOr<int> result = Dispatch(invocation->command, session);
  if (!result.ok() && cancel.stop_requested()) {
    return Fail(output, absl::CancelledError("interrupted"), kExitInterrupted);
  }
  if (!result.ok()) return Fail(output, result.status(), kExitDaemon);
  return *result;
}

}  // namespace

int Main(std::vector<std::string> arguments, const Output& terminal, std::stop_token cancel) {
  Output output = terminal;
  // Known before parsing, so that a refused command line is reported as asked.
  output.json = std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
  output.progress = terminal.progress && !output.json;
  const int code = Execute(std::move(arguments), output, cancel);
  if (output.out.flush()) return code;
  const int lost =
      Fail(output, absl::DataLossError("standard output could not be written"), kExitDaemon);
  return code == kExitOk ? lost : code;
}

}  // namespace tetrad::cli
