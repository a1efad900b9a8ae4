// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Tensor maps of a simulated driver (tests only): what its copy engine finds in the
// opaque bytes, so that a simulated kernel fetches by the map that it was given.
#pragma once

#include <optional>

#include <cuda.h>

#include "kernels/cuda/tensor_map.h"

namespace tetrad::cuda::simulated {

CUtensorMap EncodeMap(const TensorMapSpec& spec);
// None if the bytes are no map of this driver.
std::optional<TensorMapSpec> DecodeMap(const CUtensorMap& map);

}  // namespace tetrad::cuda::simulated
