// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/dialect.h"

#include <string>

#include "engine/checkpoint/json_events.h"
#include "engine/support/status_macros.h"

namespace tetrad {

std::string_view DialectName(Dialect dialect) {
  switch (dialect) {
    case Dialect::kAuto:
      return "auto";
    case Dialect::kModelOpt:
      return "modelopt";
    case Dialect::kCompressedTensors:
      return "compressed-tensors";
  }
  return "";
}

absl::StatusOr<Dialect> DeclaredDialect(std::string_view json) {
  std::string section;
  std::string field;
  Dialect declared = Dialect::kAuto;
  TETRAD_RETURN_IF_ERROR(ParseJson(json, [&](const JsonEvent& event) {
    if (event.kind == JsonEvent::Kind::kKey) {
      if (event.depth == 1) section = event.text;
      if (event.depth == 2) field = event.text;
    }
    const bool names_producer = event.kind == JsonEvent::Kind::kString && event.depth == 2 &&
                                ((section == "quantization_config" && field == "quant_method") ||
                                 (section == "producer" && field == "name"));
    if (names_producer) {
      // Serving stacks append the number format, as in "modelopt_fp4".
      if (event.text.starts_with("modelopt")) declared = Dialect::kModelOpt;
      if (event.text == "compressed-tensors") declared = Dialect::kCompressedTensors;
    }
    return absl::OkStatus();
  }));
  return declared;
}

}  // namespace tetrad
