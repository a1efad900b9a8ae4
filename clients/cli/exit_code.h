// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The exit codes of tetradctl, as documented in docs/cli.md. Scripts rely on
// them: a number never changes its meaning.
#pragma once

namespace tetrad::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitVerificationFailed = 1;  // the daemon answered, and wrongly
inline constexpr int kExitUsage = 2;               // the command line makes no sense
// The daemon is unreachable or refused the request, or the results were lost
// on the way to standard output.
inline constexpr int kExitDaemon = 3;
inline constexpr int kExitInterrupted = 130;  // SIGINT or SIGTERM, after cleaning up

}  // namespace tetrad::cli
