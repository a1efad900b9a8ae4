// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/temporary_weights.h"

#include <atomic>

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace tetrad::cli {
namespace {

// Also not used by a run that was killed.
std::string NewName(std::string_view purpose) {
  static std::atomic<uint64_t> counter{0};
  return absl::StrCat(std::string(purpose), "/", getpid(), "-",
                      absl::Hex(absl::ToUnixNanos(absl::Now())), "-", counter++);
}

}  // namespace

TemporaryWeights::TemporaryWeights(Client& client, std::string_view purpose)
    : client_(client), name_(NewName(purpose)) {}

// Without the session's cancellation: an interrupt must not keep it.
TemporaryWeights::~TemporaryWeights() {
  (void)client_.Drop(name_, {.deadline = kCleanUpDeadline, .cancel = {}});
}

}  // namespace tetrad::cli
