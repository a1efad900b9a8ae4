// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// KernelCase: what tetrad-kernels times, as a line of a CSV file has it, and the line
// of JSON it becomes. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

#include "bench/bars/figure.h"
#include "bench/kernels/type_timing.h"
#include "kernels/problem.h"

namespace tetrad::bars {

struct KernelCase {
  std::string id;  // may be that of other cases with other activations
  std::vector<GroupShape> groups;
  ActivationType activations = ActivationType::kFp16;
};

// One case a line:  id,G,K,N,M of each group with blanks between,activation,output
// Activations fp16, bf16 or nvfp4; output fp16. Empty lines and those that begin with #
// are none. INVALID_ARGUMENT names line and field.
absl::StatusOr<std::vector<KernelCase>> ParseKernelCases(std::string_view text);
absl::StatusOr<std::vector<KernelCase>> ReadKernelCases(const std::string& path);

std::string_view NameOf(ActivationType activations);

// Peer -> its time in microseconds, or why there is none.
using CasePeers = std::map<std::string, absl::StatusOr<Measured>>;

//   id activation output groups k n m kernel explanation sets calls flops bytes
//   product_tflops read_tbps compute_floor_us memory_floor_us cold_us warm_us share peers
// Times and shares are [value, first quartile, third quartile].
nlohmann::ordered_json JsonOf(const KernelCase& c, const TypeTiming& timing,
                              const CasePeers& peers);

}  // namespace tetrad::bars
