// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/random_operands.h"

#include <cstring>

#include "absl/strings/str_cat.h"

#include "kernels/float16.h"
#include "kernels/random.h"

namespace tetrad::cli {
namespace {

// Scale bytes from 2^-2 to 2 - 2^-3: ordinary values, no NaN.
constexpr int kLeastScale = 0x28;
constexpr int kMostScale = 0x3F;

void FillActivations(Random& random, v1::ActivationType type, std::string& bytes) {
  if (type == v1::ACTIVATION_TYPE_NVFP4) {
    for (char& byte : bytes) byte = static_cast<char>(random.Below(256));
    return;
  }
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    const float value = random.Normal();
    const uint16_t bits = type == v1::ACTIVATION_TYPE_FP16 ? EncodeFp16(value) : EncodeBf16(value);
    std::memcpy(bytes.data() + i, &bits, sizeof(bits));
  }
}

// Asked before operands are made: a capacity may reserve far more than fits here.
absl::Status CheckSize(const Session& session, const v1::PlanInfo& info) {
  const auto status = session.client.GetStatus(session.call);
  if (!status.ok()) return status.status();
  const int64_t bytes =
      info.activation_bytes() + info.activation_scale_bytes() + info.output_bytes();
  if (bytes <= status->max_inline_bytes()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("operands and output are ", bytes, " bytes, the daemon takes ",
                   status->max_inline_bytes(), " (max_inline_bytes)"));
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> LiveRows(const RandomOperands& wanted,
                                              const v1::PlanInfo& info) {
  const v1::Capacity& capacity = wanted.signature.capacity();
  const auto groups = static_cast<size_t>(info.groups());
  std::vector<int32_t> live = wanted.live_rows;
  if (live.empty()) {
    const bool per_group = capacity.m_source() == v1::M_SOURCE_COUNTS;
    const int64_t rows = per_group ? capacity.rows() : capacity.rows() / info.groups();
    live.assign(groups, static_cast<int32_t>(rows));
  }
  if (live.size() != groups) {
    return absl::InvalidArgumentError(
        absl::StrCat("--m has ", live.size(), " groups, the weights ", "have ", groups));
  }
  return live;
}

absl::StatusOr<v1::ExecuteRequest> MakeRandomRequest(const Session& session,
                                                     const RandomOperands& wanted,
                                                     const v1::PrepareResponse& plan) {
  const v1::PlanInfo& info = plan.info();
  if (const absl::Status status = CheckSize(session, info); !status.ok()) return status;
  Random random(wanted.seed);
  v1::ExecuteRequest request;
  request.set_plan(plan.plan());
  v1::InlineOperands& operands = *request.mutable_inline_operands();
  operands.mutable_activations()->resize(static_cast<size_t>(info.activation_bytes()));
  FillActivations(random, wanted.signature.activation_type(), *operands.mutable_activations());
  operands.mutable_activation_scales()->resize(static_cast<size_t>(info.activation_scale_bytes()));
  for (char& scale : *operands.mutable_activation_scales()) {
    scale = static_cast<char>(random.Between(kLeastScale, kMostScale));
  }
  for (int64_t row = 0; wanted.signature.row_scale() && row < info.rows(); ++row) {
    operands.add_row_scale(random.Significand());
  }
  if (wanted.signature.has_capacity()) {
    const auto values = LiveRows(wanted, info);
    if (!values.ok()) return values.status();
    if (wanted.signature.capacity().m_source() == v1::M_SOURCE_COUNTS) {
      operands.mutable_m_values()->Assign(values->begin(), values->end());
    } else {
      operands.add_m_values(0);
      for (const int32_t rows : *values) {
        operands.add_m_values(operands.m_values(operands.m_values_size() - 1) + rows);
      }
    }
  }
  return request;
}

}  // namespace tetrad::cli
