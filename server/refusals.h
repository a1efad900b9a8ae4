// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Refusals: who was refused what and why, counted, and as lines of the log
// (event=refused), a limited number for each reason (line_limit.h).
//
// Thread-safe; takes a lock only for a refusal. Cannot fail.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "absl/time/clock.h"

#include "engine/support/error_detail.h"
#include "server/line_limit.h"
#include "server/log.h"
#include "server/metrics.h"

namespace tetrad {

class Refusals {
 public:
  Refusals(Log& log, Metrics& metrics) : log_(log), metrics_(metrics) {}

  struct Refusal {
    std::string_view client;
    std::string_view method;
    std::string peer;  // its address
    std::string_view request;
    Reason reason{};
  };
  void Note(const Refusal& refusal) {
    const Metrics::Refused kind = metrics_.CountRefusal(refusal.reason);
    const auto left_out = limits_[static_cast<size_t>(kind)].Take(absl::Now());
    if (!left_out.has_value()) return;
    log_.Warning("refused", {{"client", refusal.client},
                             {"method", refusal.method},
                             {"reason", ReasonName(refusal.reason)},
                             {"peer", refusal.peer},
                             {"request", refusal.request},
                             {"left_out", *left_out}});
  }

 private:
  static constexpr int64_t kBurst = 20;
  static constexpr absl::Duration kInterval = absl::Seconds(10);
  Log& log_;
  Metrics& metrics_;
  std::array<LineLimit, Metrics::kRefused> limits_{
      LineLimit{kBurst, kInterval}, LineLimit{kBurst, kInterval}, LineLimit{kBurst, kInterval},
      LineLimit{kBurst, kInterval}};
};

}  // namespace tetrad
