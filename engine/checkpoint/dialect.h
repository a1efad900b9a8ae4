// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Dialect: which producer's conventions an NVFP4 checkpoint follows.
//
// The two agree on codes and block scales and differ in names and in the meaning of the global
// scale: ModelOpt stores the factor to multiply with, compressed-tensors the number to divide by.
// Taking one for the other gives plausible garbage, so what the configuration files declare is
// checked against the names of the tensors. Pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace tetrad {

enum class Dialect : uint8_t {
  kAuto,               // asked for: decide by the names; declared: nothing is said
  kModelOpt,           // weight, weight_scale, weight_scale_2 (a factor)
  kCompressedTensors,  // weight_packed, weight_scale, weight_global_scale (a divisor)
};

std::string_view DialectName(Dialect dialect);

// What the text of a config.json (quantization_config.quant_method) or of a hf_quant_config.json
// (producer.name) declares; kAuto where it names neither dialect.
absl::StatusOr<Dialect> DeclaredDialect(std::string_view json);

}  // namespace tetrad
