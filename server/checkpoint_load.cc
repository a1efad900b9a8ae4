// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/checkpoint_load.h"

#include <cstddef>
#include <limits>
#include <span>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "engine/checkpoint/projection.h"
#include "engine/support/status_macros.h"
#include "server/status.h"

namespace tetrad {
namespace {

absl::StatusOr<WeightsSpec> SpecOf(const ProjectionInfo& info, const CheckpointSource& source,
                                   const std::string& name) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (info.n > kMost || info.k > kMost) {
    return absl::InvalidArgumentError(absl::StrCat("pattern '", ErrorText(source.pattern, 200),
                                                   "': n=", info.n, ", k=", info.k, ", limit ",
                                                   kMost));
  }
  WeightsSpec spec;
  spec.name = name;
  spec.groups.assign(static_cast<size_t>(info.groups),
                     {static_cast<int32_t>(info.n), static_cast<int32_t>(info.k)});
  spec.scale_layout = ScaleLayout::kLinear;
  spec.alpha = info.alpha;
  spec.input_scale = info.input_scale;
  spec.source = absl::StrCat("checkpoint:", source.directory, ":", source.pattern);
  return spec;
}

absl::Status Stopped() { return absl::CancelledError("the load was stopped"); }

}  // namespace

absl::StatusOr<CheckpointWeights> LoadCheckpoint(const Root& root, const CheckpointSource& source,
                                                 const std::string& name, WeightsRegistry& registry,
                                                 LoadObserver observe) {
  TETRAD_ASSIGN_OR_RETURN(const Projection projection,
                          OpenProjection(root, source.directory, source.pattern,
                                         {.dialect = source.dialect,
                                          .ignore_input_scales = source.ignore_input_scales}));
  const ProjectionInfo& info = projection.info();
  TETRAD_ASSIGN_OR_RETURN(WeightsSpec spec, SpecOf(info, source, name));
  TETRAD_ASSIGN_OR_RETURN(const int64_t version, registry.Begin(std::move(spec)));
  absl::Cleanup abandon = [&] { registry.Abandon(name, version); };

  const auto total = static_cast<int64_t>(info.total_bytes);
  const auto code_bytes = static_cast<int64_t>(projection.code_bytes());
  const auto scale_bytes = static_cast<int64_t>(projection.scale_bytes());
  std::vector<uint8_t> codes(projection.code_bytes());
  std::vector<uint8_t> scales(projection.scale_bytes());
  for (int64_t group = 0; group < info.groups; ++group) {
    if (!observe(group * (code_bytes + scale_bytes), total)) return Stopped();
    TETRAD_RETURN_IF_ERROR(projection.ReadCodes(group, codes));
    TETRAD_RETURN_IF_ERROR(registry.Write(name, version, WeightsOperand::kCodes, group * code_bytes,
                                          std::as_bytes(std::span(codes))));
    TETRAD_RETURN_IF_ERROR(projection.ReadScales(group, scales));
    TETRAD_RETURN_IF_ERROR(registry.Write(name, version, WeightsOperand::kScales,
                                          group * scale_bytes, std::as_bytes(std::span(scales))));
  }
  if (!observe(total, total)) return Stopped();
  TETRAD_ASSIGN_OR_RETURN(WeightsInfo sealed, registry.Seal(name, version));
  std::move(abandon).Cancel();
  return CheckpointWeights{std::move(sealed), info.notes};
}

}  // namespace tetrad
