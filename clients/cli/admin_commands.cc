// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"

#include "clients/cli/commands.h"
#include "clients/cli/exit_code.h"

namespace tetrad::cli {

absl::StatusOr<int> Run(const Session& session, const DrainCommand&) {
  const auto drain = session.client.Drain(session.call);
  if (!drain.ok()) return drain.status();
  if (session.output.json) {
    session.output.PrintMessage(*drain);
  } else {
    session.output.PrintText(absl::StrCat("draining: takes requests for ",
                                          drain->lame_duck_seconds(), " s, then ends within ",
                                          drain->drain_seconds(), " s\n"));
  }
  return kExitOk;
}

absl::StatusOr<int> Run(const Session& session, const LogLevelCommand& command) {
  const auto previous = session.client.SetLogLevel(command.level, session.call);
  if (!previous.ok()) return previous.status();
  if (session.output.json) {
    session.output.PrintJson({{"level", command.level}, {"previous", *previous}});
  } else {
    session.output.PrintText(
        absl::StrCat("log level ", command.level, ", it was ", *previous, "\n"));
  }
  return kExitOk;
}

absl::StatusOr<int> Run(const Session& session, const EndLeaseCommand& command) {
  const auto client = session.client.EndLease(command.lease, session.call);
  if (!client.ok()) return client.status();
  if (session.output.json) {
    session.output.PrintJson({{"lease", command.lease}, {"client", *client}});
  } else {
    session.output.PrintText(absl::StrCat("ended lease ", command.lease, " of ", *client, "\n"));
  }
  return kExitOk;
}

}  // namespace tetrad::cli
