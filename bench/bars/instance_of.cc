// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/bars/instance_of.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/support/status_macros.h"

namespace tetrad::bars {
namespace {

std::string NameOf(bool bf16, const sm90::Instance& instance) {
  return absl::StrCat(bf16 ? "bf16." : "fp16.", instance.name);
}

}  // namespace

std::string VariantOf(const Plan& plan) {
  if (!plan.hopper.has_value()) return plan.kernel;
  return NameOf(plan.signature.types.a_type == ActivationType::kBf16, *plan.hopper->tiles.instance);
}

std::vector<std::string> AllVariants() {
  std::vector<std::string> variants;
  for (const bool bf16 : {false, true}) {
    for (const sm90::Instance& instance : sm90::kInstances) {
      variants.push_back(NameOf(bf16, instance));
    }
  }
  return variants;
}

void UseInstance(const sm90::Instance& instance, int32_t multiprocessors, Plan& plan) {
  TETRAD_CHECK(plan.hopper.has_value());
  auto schedule = LayOutHopper(plan.signature, plan.layout, multiprocessors, &instance);
  TETRAD_CHECK(schedule.ok());
  plan.hopper = *std::move(schedule);
}

}  // namespace tetrad::bars
