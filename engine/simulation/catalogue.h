// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Catalogue: the signatures and weights that simulated clients use. Few and
// small, so that they meet; of every form, so that each path is taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/plan.h"
#include "engine/signature_request.h"
#include "engine/weights.h"

namespace tetrad::simulation {

// Weights that can replace each other: the same dims and scale layout.
struct WeightsContent {
  std::vector<std::byte> codes, scales;
  std::vector<float> alpha;  // empty: 1
};
struct Family {
  std::vector<GroupDims> groups;
  ScaleLayout scale_layout = ScaleLayout::kLinear;
  std::vector<WeightsContent> contents;
};

struct Shape {
  size_t family = 0;
  SignatureRequest request;  // without the weights' name
  Signature signature;       // canonical
  OperandLayout wire, layout;
  int64_t inline_bytes = 0;  // of a staging set
};

struct Catalogue {
  std::vector<Family> families;
  std::vector<Shape> shapes;
};

// The same for every world.
Catalogue MakeCatalogue(const std::string& device);

}  // namespace tetrad::simulation
