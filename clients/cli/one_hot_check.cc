// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/one_hot_check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"

#include "kernels/float16.h"
#include "kernels/nvfp4.h"
#include "kernels/random.h"

namespace tetrad::cli {
namespace {

constexpr uint8_t kOneCode = 0x2;  // E2M1
constexpr char kOneScale = 0x38;   // UE4M3
constexpr uint16_t kOneFp16 = 0x3C00;
constexpr uint16_t kOneBf16 = 0x3F80;

// A row that is compared, and the k at which it is 1.
struct Row {
  size_t group;
  int32_t row;
  int32_t k;
};

std::vector<Row> ChooseRows(const GroupedCase& c, uint64_t seed) {
  Random random(seed);
  std::vector<Row> rows;
  for (size_t g = 0; g < c.groups.size(); ++g) {
    const CaseGroup& group = c.groups[g];
    for (int32_t row = 0; row < group.m; ++row) {
      if (row == kOneHotRows / 2 && group.m > kOneHotRows) row = group.m - kOneHotRows / 2;
      rows.push_back({g, row, random.Between(0, group.k - 1)});
    }
  }
  return rows;
}

void SetOne(ActivationType type, int64_t row_begin, int32_t k, std::string& a) {
  if (type == ActivationType::kNvfp4) {
    a[static_cast<size_t>(row_begin + k / 2)] = static_cast<char>(kOneCode << (k % 2 * 4));
    return;
  }
  const uint16_t one = type == ActivationType::kFp16 ? kOneFp16 : kOneBf16;
  std::memcpy(a.data() + row_begin + int64_t{k} * 2, &one, sizeof(one));
}

// The chosen rows alone, as FP16 with a dense FP32 output: rows in their order.
absl::StatusOr<std::string> ReadWeights(const Session& session, const std::string& weights,
                                        const GroupedCase& c, const std::vector<Row>& rows) {
  GroupedCase probe;
  probe.types.a_type = ActivationType::kFp16;
  probe.types.c_type = OutputType::kFp32;
  probe.groups = c.groups;
  for (CaseGroup& group : probe.groups) group.m = std::min(group.m, kOneHotRows);
  v1::ExecuteRequest request;
  *request.mutable_signature() = ToSignature(probe, weights);
  std::string& a = *request.mutable_inline_operands()->mutable_activations();
  const WireLayout layout = LayOutOnWire(probe);
  a.resize(static_cast<size_t>(layout.a_bytes));
  int64_t row_begin = 0;
  for (const Row& row : rows) {
    SetOne(ActivationType::kFp16, row_begin, row.k, a);
    row_begin += ActivationBytes(ActivationType::kFp16, 1, c.groups[row.group].k);
  }
  auto response = session.client.Execute(request, session.call);
  if (!response.ok()) return response.status();
  if (static_cast<int64_t>(response->output().size()) != layout.c_bytes) {
    return absl::InternalError(
        absl::StrCat("the reply has ", response->output().size(), " bytes, not ", layout.c_bytes));
  }
  return std::move(*response->mutable_output());
}

v1::ExecuteRequest OneHotRequest(const v1::PrepareResponse& plan, const GroupedCase& c,
                                 const WireLayout& layout, const std::vector<Row>& rows) {
  const v1::PlanInfo& info = plan.info();
  v1::ExecuteRequest request;
  request.set_plan(plan.plan());
  v1::InlineOperands& operands = *request.mutable_inline_operands();
  std::string& a = *operands.mutable_activations();
  a.resize(static_cast<size_t>(info.activation_bytes()));
  // The same everywhere, so their layout does not matter.
  operands.mutable_activation_scales()->assign(static_cast<size_t>(info.activation_scale_bytes()),
                                               kOneScale);
  for (const Row& row : rows) {
    const int64_t row_bytes = ActivationBytes(c.types.a_type, 1, c.groups[row.group].k);
    SetOne(c.types.a_type, layout.groups[row.group].a + row.row * row_bytes, row.k, a);
  }
  if (c.row_scale) operands.mutable_row_scale()->Resize(static_cast<int>(info.rows()), 1.0f);
  for (const int32_t value : MValues(c)) operands.add_m_values(value);
  return request;
}

uint32_t Convert(OutputType type, float value) {
  switch (type) {
    case OutputType::kFp16:
      return EncodeFp16(value);
    case OutputType::kBf16:
      return EncodeBf16(value);
    case OutputType::kFp32:
      break;
  }
  return std::bit_cast<uint32_t>(value);
}

bool IsZero(OutputType type, uint32_t bits) {
  return (type == OutputType::kFp32 ? bits << 1 : bits << 17) == 0;
}

// What differs first between the outputs and the weights read; empty if nothing.
std::string Compare(const GroupedCase& c, const WireLayout& layout, const std::vector<Row>& rows,
                    const std::string& output, const std::string& weights) {
  const int64_t element = OutputElementBytes(c.types.c_type);
  const char* expected = weights.data();
  for (const Row& row : rows) {
    const WireGroup& wire = layout.groups[row.group];
    for (int64_t n = 0; n < c.groups[row.group].n; ++n, expected += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, expected, sizeof(value));
      const int64_t at = c.types.c_layout == OutputLayout::kRowMajor ? row.row * wire.c_stride + n
                                                                     : n * wire.c_stride + row.row;
      uint32_t bits = 0;
      std::memcpy(&bits, output.data() + wire.c + at * element, static_cast<size_t>(element));
      const uint32_t wanted = Convert(c.types.c_type, value);
      if (bits == wanted || (IsZero(c.types.c_type, bits) && IsZero(c.types.c_type, wanted))) {
        continue;
      }
      return absl::StrCat("group ", row.group, " row ", row.row, " column ", n,
                          ": the weight at k=", row.k, " is ", value, " and comes out as 0x",
                          absl::Hex(bits), ", not 0x", absl::Hex(wanted));
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<std::string> CheckOneHot(const Session& session, const v1::Signature& signature,
                                        const v1::PrepareResponse& plan, const GroupedCase& c,
                                        uint64_t seed) {
  const std::vector<Row> rows = ChooseRows(c, seed);
  const WireLayout layout = LayOutOnWire(c);
  if (plan.info().activation_bytes() != layout.a_bytes ||
      plan.info().output_bytes() != layout.c_bytes) {
    return absl::StrCat("the plan wants activations ", plan.info().activation_bytes(),
                        " and output ", plan.info().output_bytes(), " bytes; the contract says ",
                        layout.a_bytes, " and ", layout.c_bytes);
  }
  const auto weights = ReadWeights(session, signature.weights(), c, rows);
  if (!weights.ok()) return weights.status();
  const auto response = session.client.Execute(OneHotRequest(plan, c, layout, rows), session.call);
  if (!response.ok()) return response.status();
  if (static_cast<int64_t>(response->output().size()) != layout.c_bytes) {
    return absl::StrCat("the reply has ", response->output().size(), " bytes, not ",
                        layout.c_bytes);
  }
  return Compare(c, layout, rows, response->output(), *weights);
}

}  // namespace tetrad::cli
