// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// TemporaryWeights: a name that no other run uses, and the promise that what
// was uploaded under it goes, whatever happens in between.
#pragma once

#include <string>
#include <string_view>

#include "clients/cpp/client.h"

namespace tetrad::cli {

// What is done after an interrupt, too, gets this long.
inline constexpr absl::Duration kCleanUpDeadline = absl::Seconds(10);

class TemporaryWeights {
 public:
  // Make it before the upload: an interrupt may cancel that just after the
  // daemon sealed. `purpose` begins the name.
  TemporaryWeights(Client& client, std::string_view purpose);
  ~TemporaryWeights();
  TemporaryWeights(const TemporaryWeights&) = delete;
  TemporaryWeights& operator=(const TemporaryWeights&) = delete;

  const std::string& name() const { return name_; }

 private:
  Client& client_;
  const std::string name_;
};

}  // namespace tetrad::cli
