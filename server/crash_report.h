// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Crash report: what is known of the daemon at the moment it dies of SIGSEGV,
// SIGBUS, SIGILL, SIGFPE or SIGABRT, on standard error and in a file.
//
// The report names the build, the process, how long it was up, the check that
// failed if that was the reason, every frame of the stack as module + offset
// (for addr2line) and, where a symbol table has it, by name. The process then
// dies of that very signal, so that cores and supervisors see what they would
// have seen.
//
// Of the process, so installed once. Only async-signal-safe calls are made when
// it dies; should they hang all the same, it is aborted after three seconds. A
// thread that overflows its stack leaves no report, unless it is the first one.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "server/version.h"

namespace tetrad {

// `path` empty: standard error only. The file is appended to, and made with
// mode 0600. Errors name option and path: it cannot be opened, is no file.
absl::Status InstallCrashReport(const std::string& path, const Version& version);

}  // namespace tetrad
