// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The device code of this build: cubins per architecture and PTX for the rest,
// embedded in the program, so that nothing is read or compiled from files. Each is
// a fat binary of its own that holds this one image compressed: cuModuleLoadData
// takes it like a cubin and decompresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tetrad::cuda {

enum class ImageForm : uint8_t { kCubin = 0, kPtx = 1 };

struct KernelImage {
  std::string_view unit;  // the source file, e.g. "portable"
  int capability = 0;     // 90 for 9.0
  ImageForm form = ImageForm::kCubin;
  // Compiled for what only this capability has ("90a"); loads on no other.
  bool specific = false;
  std::span<const std::byte> bytes;  // the fat binary, which knows its own end
};

// In the order of the build files; the bytes live as long as the program.
std::span<const KernelImage> KernelImages();
// Those of the Hopper GEMM (library tetrad_kernels_sm90).
std::span<const KernelImage> HopperImages();

// The image of `unit` to load on a device of `capability`, the best first: the
// specific cubin of just this capability; the cubin of the highest capability
// with the same major number that is not above it; the PTX of the highest
// capability not above it. Null if there is none.
const KernelImage* ChooseImage(std::span<const KernelImage> images, std::string_view unit,
                               int capability);

}  // namespace tetrad::cuda
