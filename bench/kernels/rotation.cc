// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/kernels/rotation.h"

#include <algorithm>
#include <cmath>

namespace tetrad::bars {
namespace {

constexpr int kLeastSets = 3, kLeastCalls = 20, kMostCalls = 200;
constexpr double kLeastBytes = 200e6;
constexpr double kLeastGraphUs = 1000;

}  // namespace

int SetsFor(double bytes) {
  return std::max(kLeastSets, static_cast<int>(std::ceil(kLeastBytes / bytes)));
}

int CallsFor(int sets, double least_us) {
  const int wanted =
      std::clamp(static_cast<int>(std::ceil(kLeastGraphUs / least_us)), kLeastCalls, kMostCalls);
  return (wanted + sets - 1) / sets * sets;
}

}  // namespace tetrad::bars
