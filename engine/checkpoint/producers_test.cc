// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints written by the real producers, against what those producers dequantise them to.
//
// u = 2^-24 is half an ulp of FP32. For a code c, a scale s and the stored global scale:
//   ModelOpt            fl(c * fl(s * factor))     two roundings
//   compressed-tensors  fl(c * fl(s / divisor))    two roundings
// Tetrad means c * s * alpha, exactly, with alpha = factor or fl(1 / divisor): none or one
// rounding. So the two agree within 2u(1+u) and 3u(1+u)^2 of the value; the bound below takes 3.1u.
// In the producer's own order of operations they agree bit for bit.
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "engine/checkpoint/projection.h"
#include "engine/checkpoint/test_files.h"
#include "kernels/nvfp4.h"

namespace tetrad {
namespace {

using ::testing::IsEmpty;

constexpr char kFixtures[] = "tests/checkpoints/fixtures";
constexpr double kBound = 3.1 * 0x1p-24;

struct Fixture {
  const char* folder;
  const char* pattern;
  const char* expected;  // tensor of the producer's values; {expert} as in the pattern
  Dialect dialect;
  int64_t groups, n, k;
  bool has_input_scale;
};

constexpr char kUp[] = "model.layers.0.mlp.experts.{expert}.up_proj";
constexpr char kDown[] = "model.layers.0.mlp.experts.{expert}.down_proj";
constexpr char kFusedUp[] = "model.layers.0.feed_forward.experts.gate_up_proj";
constexpr char kFusedDown[] = "model.layers.0.feed_forward.experts.down_proj";
constexpr Dialect kMo = Dialect::kModelOpt;
constexpr Dialect kCt = Dialect::kCompressedTensors;

constexpr Fixture kCases[] = {
    {"modelopt", kUp, kUp, kMo, 4, 32, 96, true},
    {"modelopt", kDown, kDown, kMo, 4, 96, 32, true},
    {"modelopt_fused", kFusedUp, kFusedUp, kMo, 2, 64, 64, true},
    {"modelopt_fused", kFusedDown, kFusedDown, kMo, 2, 64, 32, true},
    {"compressed_tensors", kUp, kUp, kCt, 4, 32, 96, true},
    {"compressed_tensors", kDown, kDown, kCt, 4, 64, 32, true},
    {"compressed_tensors_w4a16", kUp, kUp, kCt, 2, 32, 64, false},
};

std::string Expand(std::string pattern, int64_t expert) {
  const size_t at = pattern.find(kExpertPlaceholder);
  if (at != std::string::npos) {
    pattern.replace(at, kExpertPlaceholder.size(), absl::StrCat(expert));
  }
  return pattern;
}

class ProducersTest : public ::testing::TestWithParam<Fixture> {
 protected:
  void SetUp() override {
    auto root = Root::Open(kFixtures);
    ASSERT_TRUE(root.ok()) << root.status();
    auto projection = OpenProjection(*root, GetParam().folder, GetParam().pattern);
    ASSERT_TRUE(projection.ok()) << projection.status();
    projection_ = std::make_unique<Projection>(*std::move(projection));
    auto file = root->OpenFile(absl::StrCat(GetParam().folder, "/expected.safetensors"));
    ASSERT_TRUE(file.ok()) << file.status();
    auto expected = SafetensorsFile::Open(*std::move(file));
    ASSERT_TRUE(expected.ok()) << expected.status();
    expected_ = std::make_unique<SafetensorsFile>(*std::move(expected));
  }

  // The producer's values [n, k] of a group.
  std::vector<float> Expected(int64_t group) const {
    const Fixture& fixture = GetParam();
    const auto tensor = expected_->header().Find(Expand(fixture.expected, group));
    EXPECT_TRUE(tensor.has_value());
    const bool fused = tensor->shape.size() == 3;
    std::vector<uint8_t> bytes(static_cast<size_t>(fixture.n * fixture.k * 4));
    EXPECT_TRUE(expected_->Read(*tensor, fused ? group * bytes.size() : 0, bytes).ok());
    std::vector<float> values(bytes.size() / 4);
    for (size_t i = 0; i < values.size(); ++i) {
      uint32_t bits = 0;
      for (size_t b = 4; b-- > 0;) bits = bits << 8 | bytes[4 * i + b];
      values[i] = std::bit_cast<float>(bits);
    }
    return values;
  }

  // Calls `visit(code, scale, expected)` for every element of a group.
  template <typename Visit>
  void ForEachElement(int64_t group, Visit visit) const {
    const auto [n, k] = std::pair(projection_->info().n, projection_->info().k);
    std::vector<uint8_t> codes(projection_->code_bytes());
    std::vector<uint8_t> scales(projection_->scale_bytes());
    ASSERT_TRUE(projection_->ReadCodes(group, 0, codes).ok());
    ASSERT_TRUE(projection_->ReadScales(group, 0, scales).ok());
    const std::vector<float> expected = Expected(group);
    for (int64_t row = 0; row < n; ++row) {
      for (int64_t column = 0; column < k; ++column) {
        visit(DecodeE2m1(UnpackCode(codes.data() + row * k / 2, column)),
              DecodeUe4m3(scales[LinearScaleOffset(row, column / kScaleBlock, k)]),
              expected[row * k + column]);
      }
    }
  }

  // The global scale of a group as it is stored.
  float Stored(int64_t group) const {
    auto root = Root::Open(kFixtures);
    auto checkpoint = Checkpoint::Open(*root, GetParam().folder);
    const std::string layer = Expand(GetParam().pattern, group);
    for (const char* suffix : {".weight_scale_2", "_weight_scale_2", ".weight_global_scale"}) {
      const auto tensor = checkpoint->Find(layer + suffix);
      if (!tensor) continue;
      std::vector<uint8_t> bytes(4);
      EXPECT_TRUE(tensor->file->Read(tensor->info, 0, bytes).ok());
      return std::bit_cast<float>(static_cast<uint32_t>(bytes[0] | bytes[1] << 8 | bytes[2] << 16) |
                                  static_cast<uint32_t>(bytes[3]) << 24);
    }
    ADD_FAILURE() << "no global scale of " << layer;
    return 0;
  }

  std::unique_ptr<Projection> projection_;
  std::unique_ptr<SafetensorsFile> expected_;
};

TEST_P(ProducersTest, ShapesAndScalesAreTheProducers) {
  const ProjectionInfo& info = projection_->info();
  EXPECT_EQ(info.dialect, GetParam().dialect);
  EXPECT_EQ(info.groups, GetParam().groups);
  EXPECT_EQ(info.n, GetParam().n);
  EXPECT_EQ(info.k, GetParam().k);
  EXPECT_EQ(info.input_scale.size(), GetParam().has_input_scale ? info.groups : 0);
  for (const float scale : info.input_scale) EXPECT_TRUE(scale > 0 && scale < 1) << scale;
  EXPECT_THAT(info.notes, IsEmpty());
}

TEST_P(ProducersTest, ValuesAreTheProducersWithinTheirRounding) {
  for (int64_t group = 0; group < projection_->info().groups; ++group) {
    const double alpha = projection_->info().alpha[group];
    int64_t nonzero = 0;
    ForEachElement(group, [&](float code, float scale, float expected) {
      const double value = static_cast<double>(code) * scale * alpha;
      ASSERT_LE(std::abs(value - expected), kBound * std::abs(value)) << code << " * " << scale;
      nonzero += value != 0;
    });
    EXPECT_GT(nonzero, projection_->info().n * projection_->info().k / 4);
  }
}

TEST_P(ProducersTest, ValuesAreTheProducersToTheBitInTheirOrderOfOperations) {
  for (int64_t group = 0; group < projection_->info().groups; ++group) {
    const float stored = Stored(group);
    ForEachElement(group, [&](float code, float scale, float expected) {
      const float block = GetParam().dialect == kMo ? scale * stored : scale / stored;
      ASSERT_EQ(code * block, expected);
    });
  }
}

// The mistakes that the comparison above is there to notice, made on purpose: each must move most
// of the values past the bound.
TEST_P(ProducersTest, MistakesWouldBeNoticed) {
  const float alpha = projection_->info().alpha[0];
  int64_t nonzero = 0;
  int64_t inverted = 0;  // a divisor taken for a factor, or the reverse
  ForEachElement(0, [&](float code, float scale, float expected) {
    if (expected == 0) return;
    ++nonzero;
    const double wrong = static_cast<double>(code) * scale * (1.0 / alpha);
    inverted += std::abs(wrong - expected) > kBound * std::abs(wrong);
  });
  EXPECT_EQ(inverted, nonzero);

  const auto [n, k] = std::pair(projection_->info().n, projection_->info().k);
  std::vector<uint8_t> codes(projection_->code_bytes());
  ASSERT_TRUE(projection_->ReadCodes(0, 0, codes).ok());
  const std::vector<float> expected = Expected(0);
  int64_t swapped = 0;  // the high nibble taken for the even column: signs alone must differ
  for (int64_t i = 0; i < n * k; ++i) {
    const float code = DecodeE2m1(UnpackCode(codes.data(), i ^ 1));
    swapped += std::signbit(code) != std::signbit(expected[i]);
  }
  EXPECT_GT(swapped, n * k / 8);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, ProducersTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) {
                           const std::string pattern = info.param.pattern;
                           return absl::StrCat(info.param.folder, "_",
                                               pattern.substr(pattern.rfind('.') + 1));
                         });

TEST(QuickstartCheckpointsTest, LoadWholeInBothDialects) {
  const auto root = Root::Open(kFixtures);
  ASSERT_TRUE(root.ok()) << root.status();
  for (const char* folder : {"quickstart_modelopt", "quickstart_compressed_tensors"}) {
    const auto projection = OpenProjection(*root, folder, kUp);
    ASSERT_TRUE(projection.ok()) << projection.status();
    EXPECT_EQ(projection->info().groups, 8);
    EXPECT_EQ(projection->info().n, 256);
    EXPECT_EQ(projection->info().k, 256);
    EXPECT_THAT(projection->info().notes, IsEmpty());
    std::vector<uint8_t> codes(projection->code_bytes());
    std::vector<uint8_t> scales(projection->scale_bytes());
    for (int64_t group = 0; group < 8; ++group) {
      EXPECT_TRUE(projection->ReadCodes(group, 0, codes).ok());
      EXPECT_TRUE(projection->ReadScales(group, 0, scales).ok());
    }
  }
}

}  // namespace
}  // namespace tetrad
