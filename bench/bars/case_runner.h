// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// CaseRunner: grouped GEMMs of the command line's cases (clients/cli) on an
// engine in this process, each compared with the FP64 reference.
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "bench/bars/figure.h"
#include "clients/cli/grouped_case.h"
#include "engine/engine.h"
#include "kernels/sample.h"

namespace tetrad::bars {

class CaseRunner {
 public:
  static absl::StatusOr<std::unique_ptr<CaseRunner>> Open(const Setting& setting);

  // Registers seeded weights, executes, compares every output element and every
  // gap. OK: all are right. Any other status says what is wrong.
  absl::Status Run(const cli::GroupedCase& c, DataKind kind, uint64_t seed);
  // What the plan of the last case that had one uses, see VariantOf().
  const std::string& last_variant() const { return last_variant_; }
  std::string capability() const { return engine_->device_limits().capability; }

 private:
  CaseRunner(std::unique_ptr<Engine> engine, int threads)
      : engine_(std::move(engine)), threads_(threads) {}

  const std::unique_ptr<Engine> engine_;
  const int threads_;
  std::string last_variant_;
};

}  // namespace tetrad::bars
