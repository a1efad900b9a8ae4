// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Names of things that clients hold: "<kind>-<generation>-<number>-<secret>".
//
// The generation is the process's, so that a name from before a restart is
// recognised as stale; the secret is random, so that a name cannot be guessed
// by another client of the same identity. Values; a name is checked against
// what was drawn for its number by whoever keeps the table.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tetrad {

class HandleNames {
 public:
  // `kind` begins every name and every message, e.g. "plan"; `remedy` ends the
  // message of a stale one, e.g. "prepare again".
  HandleNames(std::string_view kind, uint64_t generation, std::string_view remedy);

  struct Parts {
    uint64_t number = 0;
    uint64_t secret = 0;
  };
  std::string Make(Parts parts) const;
  // INVALID_ARGUMENT if it never was a name of this kind, ABORTED if it is
  // another process's.
  absl::StatusOr<Parts> Parse(std::string_view text) const;
  // ABORTED: was one of this process, and ended.
  absl::Status Stale() const;
  // PERMISSION_DENIED.
  absl::Status NotYours() const;

  // Unpredictable.
  static uint64_t DrawSecret();

 private:
  const std::string kind_;
  const std::string prefix_;  // "<kind>-<generation>-"
  const std::string remedy_;
};

}  // namespace tetrad
