// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Our device code compiled for the CPU.
#pragma once

#include <string_view>

namespace tetrad::cuda::emulation {

// Runs the kernel as one thread of the current CTA; arguments as the driver takes them.
using Kernel = void (*)(void** arguments);

// Null if there is no such entry, or none for the CPU.
Kernel FindKernel(std::string_view entry);

}  // namespace tetrad::cuda::emulation
