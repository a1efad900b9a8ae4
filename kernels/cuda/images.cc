// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/images.h"

#include <tuple>

namespace tetrad::cuda {
namespace {

bool Loads(const KernelImage& image, int capability) {
  if (image.specific) return image.capability == capability;
  if (image.form == ImageForm::kCubin && image.capability / 10 != capability / 10) return false;
  return image.capability <= capability;
}

bool Better(const KernelImage& x, const KernelImage& y) {
  const auto rank = [](const KernelImage& image) {
    return std::tuple(image.specific, image.form == ImageForm::kCubin, image.capability);
  };
  return rank(x) > rank(y);
}

}  // namespace

const KernelImage* ChooseImage(std::span<const KernelImage> images, std::string_view unit,
                               int capability) {
  const KernelImage* best = nullptr;
  for (const KernelImage& image : images) {
    if (image.unit != unit || !Loads(image, capability)) continue;
    if (best == nullptr || Better(image, *best)) best = &image;
  }
  return best;
}

}  // namespace tetrad::cuda
