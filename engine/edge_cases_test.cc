// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Shapes and paddings on which other systems failed in the field.
#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/cpu_device.h"
#include "engine/engine.h"
#include "engine/sample_request.h"

namespace tetrad {
namespace {

using ::testing::HasSubstr;

class EdgeCasesTest : public ::testing::Test {
 protected:
  EdgeCasesTest() {
    engine_ = *Engine::Create(
        [](std::function<void()> wake) -> absl::StatusOr<std::unique_ptr<Device>> {
          return CpuDevice::Create({.memory_bytes = 512 << 20, .measure_rates = false},
                                   std::move(wake));
        },
        {});
  }

  absl::StatusOr<std::vector<std::byte>> Run(const SignatureRequest& signature,
                                             const InlineOperands& operands) {
    ExecuteRequest request;
    request.signature = &signature;
    request.operands = operands;
    std::promise<absl::StatusOr<std::vector<std::byte>>> answer;
    engine_->Execute(request, [&](absl::StatusOr<Executed> executed) {
      if (!executed.ok()) return answer.set_value(executed.status());
      std::vector<std::byte> output(static_cast<size_t>(executed->output_bytes()));
      const absl::Status status = executed->CopyOutput(output);
      if (!status.ok()) return answer.set_value(status);
      answer.set_value(std::move(output));
    });
    return answer.get_future().get();
  }
  void ExpectBitEqual(std::vector<GroupShape> shapes, const SampleOptions& options) {
    SampleRequest sample(std::move(shapes), options);
    ASSERT_TRUE(sample.Register(engine_->weights(), "w").ok());
    const auto output = Run(sample.Signature("w"), sample.Inline());
    ASSERT_TRUE(output.ok()) << output.status();
    const Verdict verdict = sample.Judge(*output);
    EXPECT_TRUE(verdict.pass) << verdict.ToString();
    ASSERT_TRUE(engine_->weights().Drop("w").ok());
  }

  std::unique_ptr<Engine> engine_;
};

TEST_F(EdgeCasesTest, MoreGroupsAndRowsThanAGridDimensionHolds) {
  ExpectBitEqual(std::vector<GroupShape>(70000, {1, 8, 32}), {.kind = DataKind::kContest});
  ExpectBitEqual(std::vector<GroupShape>(70000, {1, 8, 32}),
                 {.kind = DataKind::kContest, .form = GroupForm::kStacked});
  ExpectBitEqual({{70000, 8, 32}}, {.kind = DataKind::kContest});
}

TEST_F(EdgeCasesTest, EmptyGroupsAnywhere) {
  for (const GroupForm form : {GroupForm::kSeparate, GroupForm::kStacked}) {
    for (const std::vector<int32_t>& m :
         {std::vector<int32_t>{0, 4, 0}, {4, 3, 0}, {0, 0, 9}, {0, 0, 0}}) {
      std::vector<GroupShape> shapes;
      for (const int32_t rows : m) shapes.push_back({rows, 24, 64});
      ExpectBitEqual(shapes, {.form = form});
    }
  }
}

TEST_F(EdgeCasesTest, EmptyLegalShapesOnly) {
  SampleRequest sample({{1, 8, 32}}, {});
  ASSERT_TRUE(sample.Register(engine_->weights(), "w").ok());
  for (const auto& [dims, text] :
       {std::pair<std::vector<GroupDims>, const char*>{{{8, 0}}, "group 0: k=0"},
        {{}, "groups=0"},
        {{{8, 32}, {0, 32}}, "group 1: n=0"}}) {
    WeightsSpec spec;
    spec.name = "bad";
    spec.groups = dims;
    EXPECT_THAT(std::string(engine_->weights().Begin(spec).status().message()), HasSubstr(text));
  }
}

// M = 5, K = 96: 6 scale blocks padded to 8, 5 rows padded to 128.
TEST_F(EdgeCasesTest, BlockedPaddingMayHoldNanAndAShortPlaneIsRefused) {
  SampleOptions options;
  options.kind = DataKind::kGeneral;
  options.types.a_scale_layout = ScaleLayout::kBlocked;
  SampleRequest sample({{5, 24, 96}}, options);
  ASSERT_TRUE(sample.Register(engine_->weights(), "w").ok());
  const SignatureRequest signature = sample.Signature("w");
  InlineOperands operands = sample.Inline();
  std::string poisoned(operands.activation_scales.size(), '\x7F');
  std::string clean(operands.activation_scales.size(), '\0');
  for (int64_t row = 0; row < 5; ++row) {
    for (int64_t block = 0; block < 6; ++block) {
      const size_t at = static_cast<size_t>(BlockedScaleOffset(row, block, 96));
      poisoned[at] = clean[at] = operands.activation_scales[at];
    }
  }
  operands.activation_scales = poisoned;
  const auto with_nan = Run(signature, operands);
  operands.activation_scales = clean;
  const auto with_zero = Run(signature, operands);
  ASSERT_TRUE(with_nan.ok() && with_zero.ok());
  EXPECT_EQ(*with_nan, *with_zero);
  EXPECT_TRUE(sample.Judge(*with_nan).pass);

  operands.activation_scales = operands.activation_scales.substr(0, 5 * 6);
  EXPECT_THAT(std::string(Run(signature, operands).status().message()),
              HasSubstr("activation_scales: 30 bytes, the signature needs 1024"));
}

// Outputs that overflow, NaN scales of activations and infinite row scales end
// as IEEE says, in their rows only.
TEST_F(EdgeCasesTest, NonFiniteValuesStayInTheirRows) {
  SampleOptions options;
  options.kind = DataKind::kContest;
  options.row_scales = true;
  SampleRequest sample({{4, 16, 64}}, options);
  ASSERT_TRUE(sample.Register(engine_->weights(), "w").ok());
  InlineOperands operands = sample.Inline();
  const auto plain = Run(sample.Signature("w"), operands);
  std::string scales(operands.activation_scales);
  scales[1 * 4 + 2] = '\xFF';  // row 1: bit 7 ignored, so 0x7F: NaN
  operands.activation_scales = scales;
  std::vector<float> rows(operands.row_scale.begin(), operands.row_scale.end());
  rows[2] = INFINITY;
  operands.row_scale = rows;
  const auto got = Run(sample.Signature("w"), operands);
  ASSERT_TRUE(plain.ok() && got.ok());
  const auto element = [](const std::vector<std::byte>& c, size_t i) {
    uint16_t bits;
    std::memcpy(&bits, c.data() + 2 * i, 2);
    return bits;
  };
  for (size_t n = 0; n < 16; ++n) {
    EXPECT_EQ(element(*got, n), element(*plain, n));
    EXPECT_EQ(element(*got, 16 + n), kCanonicalNanFp16);
    const uint16_t before = element(*plain, 32 + n);
    EXPECT_EQ(element(*got, 32 + n),
              (before & 0x7FFF) == 0 ? kCanonicalNanFp16 : ((before & 0x8000) | 0x7C00));
    EXPECT_EQ(element(*got, 48 + n), element(*plain, 48 + n));
  }
}

}  // namespace
}  // namespace tetrad
