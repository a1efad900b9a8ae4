// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// A driver whose one device is an emulation (cta.h) of capability 9.0: memory is
// the host's, a page that may not be touched behind it; a launch runs the kernel to
// the end before it returns. It has what DirectDevice calls and null elsewhere, and the
// kernels but the rates.
#pragma once

#include "kernels/cuda/driver.h"

namespace tetrad::cuda::emulation {

CudaDriver EmulatedDriver();

}  // namespace tetrad::cuda::emulation
