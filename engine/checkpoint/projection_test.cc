// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/projection.h"

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "engine/checkpoint/test_files.h"

namespace tetrad {
namespace {

using ::testing::ElementsAre;
using testing::F32Bytes;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Safetensors;
using testing::TempFolder;
using testing::TestTensor;

constexpr uint64_t kN = 3;
constexpr uint64_t kK = 64;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr char kPattern[] = "l.experts.{expert}.up";

using Tensors = std::map<std::string, TestTensor>;

void Put(Tensors& tensors, const TestTensor& tensor) { tensors[tensor.name] = tensor; }

// Bytes that differ from place to place and stay below `limit`.
std::string Bytes(uint64_t count, int seed, int limit) {
  std::string bytes;
  for (uint64_t i = 0; i < count; ++i) {
    bytes += static_cast<char>((static_cast<uint64_t>(seed) * 37 + i * 11 + i / 7) % limit);
  }
  return bytes;
}

// Two experts in either dialect; alpha is 0.5 and 0.25, input scales 0.125.
Tensors Sample(Dialect dialect) {
  const bool modelopt = dialect == Dialect::kModelOpt;
  Tensors tensors;
  for (int e = 0; e < 2; ++e) {
    const std::string layer = absl::StrCat("l.experts.", e, ".up");
    const float alpha = e == 0 ? 0.5f : 0.25f;
    Put(tensors, {layer + (modelopt ? ".weight" : ".weight_packed"),
                  "U8",
                  {kN, kK / 2},
                  Bytes(kN * kK / 2, e, 256)});
    Put(tensors, {layer + ".weight_scale", "F8_E4M3", {kN, kK / 16}, Bytes(kN * kK / 16, e, 127)});
    if (modelopt) {
      Put(tensors, {layer + ".weight_scale_2", "F32", {}, F32Bytes({alpha})});
      Put(tensors, {layer + ".input_scale", "F32", {}, F32Bytes({0.125f})});
    } else {
      Put(tensors, {layer + ".weight_global_scale", "F32", {1}, F32Bytes({1 / alpha})});
      Put(tensors, {layer + ".input_global_scale", "F32", {1}, F32Bytes({8})});
    }
  }
  return tensors;
}

class ProjectionTest : public ::testing::TestWithParam<Dialect> {
 protected:
  ProjectionTest() : root_(*Root::Open(folder_.path().string())) {}

  absl::StatusOr<Projection> Open(const Tensors& tensors, const std::string& pattern = kPattern,
                                  const ProjectionOptions& options = {}) const {
    std::vector<TestTensor> list;
    for (const auto& [name, tensor] : tensors) list.push_back(tensor);
    folder_.Write("model.safetensors", Safetensors(list));
    return OpenProjection(root_, "", pattern, options);
  }

  const TempFolder folder_;
  const Root root_;
};

std::string ReadCodes(const Projection& projection, int64_t group) {
  std::vector<uint8_t> out(projection.code_bytes());
  const absl::Status status = projection.ReadCodes(group, 0, out);
  EXPECT_TRUE(status.ok()) << status;
  return {out.begin(), out.end()};
}

std::string ReadScales(const Projection& projection, int64_t group) {
  std::vector<uint8_t> out(projection.scale_bytes());
  const absl::Status status = projection.ReadScales(group, 0, out);
  EXPECT_TRUE(status.ok()) << status;
  return {out.begin(), out.end()};
}

std::string Refusal(const absl::StatusOr<Projection>& projection) {
  EXPECT_FALSE(projection.ok());
  return std::string(projection.status().message());
}

TEST_P(ProjectionTest, LoadsEveryExpert) {
  const auto projection = Open(Sample(GetParam()));
  ASSERT_TRUE(projection.ok()) << projection.status();
  const ProjectionInfo& info = projection->info();
  EXPECT_EQ(info.dialect, GetParam());
  EXPECT_EQ(info.groups, 2);
  EXPECT_EQ(info.n, 3);
  EXPECT_EQ(info.k, 64);
  EXPECT_THAT(info.alpha, ElementsAre(0.5f, 0.25f));
  EXPECT_THAT(info.input_scale, ElementsAre(0.125f, 0.125f));
  EXPECT_THAT(info.notes, IsEmpty());
  EXPECT_EQ(info.total_bytes, 2 * (kN * kK / 2 + kN * kK / 16));
  for (int e = 0; e < 2; ++e) {
    EXPECT_EQ(ReadCodes(*projection, e), Bytes(kN * kK / 2, e, 256));
    EXPECT_EQ(ReadScales(*projection, e), Bytes(kN * kK / 16, e, 127));
  }
}

TEST_P(ProjectionTest, OneLayerIsOneGroup) {
  const auto projection = Open(Sample(GetParam()), "l.experts.1.up");
  ASSERT_TRUE(projection.ok()) << projection.status();
  EXPECT_EQ(projection->info().groups, 1);
  EXPECT_THAT(projection->info().alpha, ElementsAre(0.25f));
  EXPECT_EQ(ReadCodes(*projection, 0), Bytes(kN * kK / 2, 1, 256));
}

TEST_P(ProjectionTest, GroupsAndBuffersAreChecked) {
  const auto projection = Open(Sample(GetParam()));
  std::vector<uint8_t> out(projection->code_bytes());
  EXPECT_THAT(std::string(projection->ReadCodes(2, 0, out).message()), HasSubstr("group 2 of 2"));
  EXPECT_THAT(std::string(projection->ReadCodes(-1, 0, out).message()), HasSubstr("group -1"));
  EXPECT_THAT(std::string(projection->ReadScales(0, 0, out).message()),
              HasSubstr("group 0: has 12 bytes; wanted 96 from byte 0"));
  EXPECT_THAT(std::string(projection->ReadCodes(1, 1, out).message()),
              HasSubstr("group 1: has 96 bytes; wanted 96 from byte 1"));
  EXPECT_THAT(std::string(projection->ReadCodes(1, uint64_t{1} << 63, {}).message()),
              HasSubstr("wanted 0 from byte 9223372036854775808"));
  EXPECT_TRUE(projection->ReadCodes(1, 96, {}).ok());
}

TEST_P(ProjectionTest, BadScalesAreRefusedWithTensorRowAndBlock) {
  const struct {
    uint8_t byte;
    const char* reason;
  } cases[] = {{0x7F, "scale byte 7f is NaN"},
               {0xFF, "scale byte ff is NaN"},
               {0x80, "scale byte 80 is negative"},
               {0xB8, "scale byte b8 is negative"}};
  for (const bool over_zero_codes : {true, false}) {
    for (const auto& c : cases) {
      Tensors tensors = Sample(GetParam());
      tensors["l.experts.1.up.weight_scale"].bytes[2 * kK / 16 + 3] = static_cast<char>(c.byte);
      if (over_zero_codes) {
        const bool modelopt = GetParam() == Dialect::kModelOpt;
        tensors[absl::StrCat("l.experts.1.up.weight", modelopt ? "" : "_packed")].bytes.assign(
            kN * kK / 2, '\0');
      }
      const auto projection = Open(tensors);
      ASSERT_TRUE(projection.ok()) << projection.status();
      std::vector<uint8_t> out(projection->scale_bytes());
      EXPECT_TRUE(projection->ReadScales(0, 0, out).ok());
      const absl::Status status = projection->ReadScales(1, 0, out);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("tensor `l.experts.1.up.weight_scale` (F8_E4M3 [3, 4]): group 1 row 2 "
                            "block 3: "));
      EXPECT_THAT(std::string(status.message()), HasSubstr(c.reason));
    }
  }
}

TEST_P(ProjectionTest, BadGlobalScalesAreRefused) {
  const bool modelopt = GetParam() == Dialect::kModelOpt;
  const std::string weights =
      absl::StrCat("l.experts.1.up.", modelopt ? "weight_scale_2" : "weight_global_scale");
  const std::string inputs =
      absl::StrCat("l.experts.1.up.", modelopt ? "input_scale" : "input_global_scale");
  // 3e38 is normal, but its reciprocal is not.
  std::vector<float> values = {kInf, -kInf, kNan, 0.0f, -0.0f, -1.0f, 1e-40f};
  if (!modelopt) values.push_back(3e38f);
  for (const float value : values) {
    Tensors tensors = Sample(GetParam());
    tensors[weights].bytes = F32Bytes({value});
    EXPECT_THAT(Refusal(Open(tensors)), HasSubstr("tensor `" + weights + "`")) << value;
    EXPECT_THAT(Refusal(Open(tensors, kPattern, {.ignore_input_scales = true})),
                HasSubstr("positive, finite and normal"))
        << value;

    tensors = Sample(GetParam());
    tensors[inputs].bytes = F32Bytes({value});
    EXPECT_THAT(Refusal(Open(tensors)), HasSubstr("tensor `" + inputs + "`")) << value;
    const auto ignored = Open(tensors, kPattern, {.ignore_input_scales = true});
    ASSERT_TRUE(ignored.ok()) << ignored.status();
    EXPECT_THAT(ignored->info().input_scale, IsEmpty());
  }
}

TEST_P(ProjectionTest, WhatDoesNotFitIsRefusedByName) {
  const bool modelopt = GetParam() == Dialect::kModelOpt;
  const std::string codes = absl::StrCat("l.experts.1.up.weight", modelopt ? "" : "_packed");
  const std::string first = absl::StrCat("l.experts.0.up.weight", modelopt ? "" : "_packed");
  const std::string scales = "l.experts.1.up.weight_scale";
  const std::string global =
      absl::StrCat("l.experts.1.up.", modelopt ? "weight_scale_2" : "weight_global_scale");
  const auto zeros = [](uint64_t count) { return std::string(count, '\0'); };
  const struct {
    const char* what;
    TestTensor tensor;  // replaces the one of its name
    std::string reason;
  } cases[] = {
      {"rows",
       {codes, "U8", {4, 32}, zeros(128)},
       "must be U8 [3, 32] to go with tensor `" + first},
      {"columns", {codes, "U8", {3, 48}, zeros(144)}, "must be U8 [3, 32]"},
      {"type", {codes, "I8", {3, 32}, zeros(96)}, "must be U8 [3, 32]"},
      {"not quantised", {first, "BF16", {3, 64}, zeros(384)}, "packed codes must be U8"},
      {"rank", {first, "U8", {1, 3, 32}, zeros(96)}, "must be [N, K/2] where the pattern has"},
      {"no rows", {first, "U8", {0, 32}, ""}, "no dimension may be 0"},
      {"K", {first, "U8", {3, 24}, zeros(72)}, "K=48 must be a multiple of 32"},
      {"scale rows", {scales, "F8_E4M3", {4, 4}, zeros(16)}, "must be F8_E4M3 [3, 4]"},
      {"scale blocks", {scales, "F8_E4M3", {3, 2}, zeros(6)}, "must be F8_E4M3 [3, 4]"},
      {"blocks of 32", {scales, "F8_E4M3", {3, 8}, zeros(24)}, "must be F8_E4M3 [3, 4]"},
      {"scale type", {scales, "F8_E5M2", {3, 4}, zeros(12)}, "must be F8_E4M3 [3, 4]"},
      {"global type",
       {global, "BF16", {1}, zeros(2)},
       "tensor `" + global + "` (BF16 [1]): must be"},
      {"global size", {global, "F32", {3}, zeros(12)}, "must hold one value"},
      {"no global value", {global, "F32", {0}, ""}, "must hold one value"},
  };
  for (const auto& c : cases) {
    Tensors tensors = Sample(GetParam());
    Put(tensors, c.tensor);
    const std::string refusal = Refusal(Open(tensors));
    EXPECT_THAT(refusal, HasSubstr(c.reason)) << c.what;
    EXPECT_THAT(refusal, HasSubstr(c.tensor.name)) << c.what;
  }
}

TEST_P(ProjectionTest, MissingTensorsAreNamed) {
  for (const auto& [name, tensor] : Sample(GetParam())) {
    Tensors tensors = Sample(GetParam());
    tensors.erase(name);
    if (name.find("input") != std::string::npos) {
      const auto projection = Open(tensors);
      ASSERT_TRUE(projection.ok()) << projection.status();
      EXPECT_THAT(projection->info().input_scale, IsEmpty());
      EXPECT_THAT(projection->info().notes, ElementsAre(HasSubstr("only 1 of 2 experts")));
    } else {
      EXPECT_THAT(Refusal(Open(tensors)), HasSubstr("`" + name + "` is missing"));
    }
  }
}

TEST_P(ProjectionTest, ExpertsAreCountedFromZeroWithoutGaps) {
  const auto renamed = [](const std::string& to) {
    Tensors tensors;
    for (auto& [name, tensor] : Sample(GetParam())) {
      TestTensor moved = tensor;
      if (moved.name.starts_with("l.experts.1.")) moved.name = to + moved.name.substr(11);
      Put(tensors, moved);
    }
    return tensors;
  };
  EXPECT_TRUE(Open(renamed("l.experts.1")).ok());
  EXPECT_THAT(Refusal(Open(renamed("l.experts.2"))), HasSubstr("expert 1 is missing"));
  EXPECT_THAT(Refusal(Open(renamed("l.experts.1000000000000000000"))),
              HasSubstr("expert 1 is missing"));
  EXPECT_THAT(Refusal(Open(renamed("l.experts.99999999999999999999"))), HasSubstr("bad expert"));
  EXPECT_THAT(Refusal(Open(renamed("l.experts.01"))), HasSubstr("bad expert number `01`"));
  EXPECT_EQ(Open(renamed("l.experts.shared"))->info().groups, 1);
  EXPECT_THAT(Refusal(Open(Sample(GetParam()), "l.experts.{expert}.down")), HasSubstr("no tensor"));
  EXPECT_THAT(Refusal(Open(Sample(GetParam()), "")), HasSubstr("pattern is empty"));
  EXPECT_THAT(Refusal(Open(Sample(GetParam()), "{expert}.{expert}")), HasSubstr("twice"));
}

TEST_P(ProjectionTest, TheWrongDialectIsRefused) {
  const Dialect other =
      GetParam() == Dialect::kModelOpt ? Dialect::kCompressedTensors : Dialect::kModelOpt;
  EXPECT_TRUE(Open(Sample(GetParam()), kPattern, {.dialect = GetParam()}).ok());
  EXPECT_THAT(Refusal(Open(Sample(GetParam()), kPattern, {.dialect = other})),
              HasSubstr("was asked for"));
  folder_.Write("config.json", absl::StrCat(R"({"quantization_config":{"quant_method":")",
                                            std::string(DialectName(other)), R"("}})"));
  EXPECT_THAT(Refusal(Open(Sample(GetParam()))), HasSubstr("config.json declares"));

  Tensors both = Sample(GetParam());
  both.merge(Sample(other));
  EXPECT_THAT(Refusal(Open(both)), HasSubstr("names of both dialects"));
}

TEST_P(ProjectionTest, TensorsOfUnknownMeaningAreRefusedAndBiasesNoted) {
  Tensors tensors = Sample(GetParam());
  Put(tensors, {"l.experts.1.up.bias", "BF16", {3}, std::string(6, '\0')});
  Put(tensors, {"l.experts.1.up_proj.weight", "BF16", {1}, "xx"});
  Put(tensors, {"l.experts.1.up.child.weight", "BF16", {1}, "xx"});
  const auto noted = Open(tensors);
  ASSERT_TRUE(noted.ok()) << noted.status();
  EXPECT_THAT(noted->info().notes, ElementsAre(HasSubstr("`l.experts.1.up.bias`")));
  for (const char* name : {"pre_quant_scale", "weight_zero_point", "weight_g_idx"}) {
    Tensors with = Sample(GetParam());
    Put(with, {absl::StrCat("l.experts.1.up.", name), "F32", {1}, F32Bytes({1})});
    EXPECT_THAT(Refusal(Open(with)), HasSubstr(name));
  }
}

INSTANTIATE_TEST_SUITE_P(Dialects, ProjectionTest,
                         ::testing::Values(Dialect::kModelOpt, Dialect::kCompressedTensors),
                         [](const auto& info) {
                           return info.param == Dialect::kModelOpt ? "ModelOpt"
                                                                   : "CompressedTensors";
                         });

using FusedTest = ProjectionTest;

TEST_F(FusedTest, FusedParametersHoldAllGroups) {
  constexpr uint64_t kG = 2;
  for (const bool one_scale : {true, false}) {
    const std::string global = one_scale ? F32Bytes({0.5f}) : F32Bytes({0.5f, 0.25f});
    Tensors tensors;
    Put(tensors, {"e.up.weight", "U8", {kG, kN, kK / 2}, Bytes(kG * kN * kK / 2, 1, 256)});
    Put(tensors,
        {"e.up.weight_scale", "F8_E4M3", {kG, kN, kK / 16}, Bytes(kG * kN * kK / 16, 2, 127)});
    Put(tensors, {"e.up.weight_scale_2", "F32", {one_scale ? 1 : kG}, global});
    const auto projection = Open(tensors, "e.up");
    ASSERT_TRUE(projection.ok()) << projection.status();
    EXPECT_EQ(projection->info().groups, 2);
    EXPECT_THAT(projection->info().alpha, ElementsAre(0.5f, one_scale ? 0.5f : 0.25f));
    EXPECT_EQ(ReadCodes(*projection, 0) + ReadCodes(*projection, 1), tensors["e.up.weight"].bytes);
    EXPECT_EQ(ReadScales(*projection, 0) + ReadScales(*projection, 1),
              tensors["e.up.weight_scale"].bytes);
  }
}

// Stored [G, K/2, N], and wide enough that turning takes more than one strip.
TEST_F(FusedTest, TransposedParametersAreTurned) {
  constexpr uint64_t kG = 2;
  constexpr uint64_t kWideN = 100'000;
  Tensors tensors;
  Put(tensors, {"e.up", "U8", {kG, kK / 2, kWideN}, Bytes(kG * kWideN * kK / 2, 1, 251)});
  Put(tensors, {"e.up_weight_scale",
                "F8_E4M3",
                {kG, kK / 16, kWideN},
                Bytes(kG * kWideN * kK / 16, 2, 127)});
  Put(tensors, {"e.up_weight_scale_2", "F32", {}, F32Bytes({0.5f})});
  const auto projection = Open(tensors, "e.up");
  ASSERT_TRUE(projection.ok()) << projection.status();
  EXPECT_EQ(projection->info().n, static_cast<int64_t>(kWideN));
  EXPECT_EQ(projection->info().k, static_cast<int64_t>(kK));
  const auto turned = [](const std::string& stored, uint64_t group, uint64_t row_bytes) {
    std::string out;
    for (uint64_t n = 0; n < kWideN; ++n) {
      for (uint64_t i = 0; i < row_bytes; ++i) out += stored[(group * row_bytes + i) * kWideN + n];
    }
    return out;
  };
  for (uint64_t group = 0; group < kG; ++group) {
    EXPECT_TRUE(ReadCodes(*projection, group) == turned(tensors["e.up"].bytes, group, kK / 2));
    EXPECT_TRUE(ReadScales(*projection, group) ==
                turned(tensors["e.up_weight_scale"].bytes, group, kK / 16));
  }
}

TEST_F(FusedTest, SiblingsOfAFusedParameterArePartOfIt) {
  Tensors fused;
  Put(fused, {"e.up", "U8", {1, kN, kK / 2}, Bytes(kN * kK / 2, 1, 256)});
  Put(fused, {"e.up_weight_scale", "F8_E4M3", {1, kN, kK / 16}, Bytes(kN * kK / 16, 2, 127)});
  Put(fused, {"e.up_weight_scale_2", "F32", {}, F32Bytes({0.5f})});
  Put(fused, {"e.up_bias", "F32", {1}, F32Bytes({1})});
  const auto noted = Open(fused, "e.up");
  ASSERT_TRUE(noted.ok()) << noted.status();
  EXPECT_THAT(noted->info().notes, ElementsAre(HasSubstr("`e.up_bias`")));
  Put(fused, {"e.up_pre_quant_scale", "F32", {1}, F32Bytes({1})});
  EXPECT_THAT(Refusal(Open(fused, "e.up")), HasSubstr("`e.up_pre_quant_scale`"));

  // Beside a layer with a name of its own, such a name is another layer's.
  Tensors layer = Sample(Dialect::kModelOpt);
  Put(layer, {"l.experts.0.up_bias", "F32", {1}, F32Bytes({1})});
  const auto other = Open(layer, "l.experts.0.up");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_THAT(other->info().notes, IsEmpty());
  EXPECT_EQ(Open(layer, "l.experts.0").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(FusedTest, AFactorAboveOneIsNoted) {
  Tensors tensors = Sample(Dialect::kModelOpt);
  tensors["l.experts.1.up.weight_scale_2"].bytes = F32Bytes({28230.89f});
  const auto projection = Open(tensors);
  ASSERT_TRUE(projection.ok()) << projection.status();
  EXPECT_THAT(projection->info().notes, ElementsAre(HasSubstr("group 1: global factor 28230.9")));
}

TEST_F(FusedTest, StrangeNamesStayPrintable) {
  Tensors tensors = Sample(Dialect::kModelOpt);
  const std::string name = absl::StrCat("l.experts.0.up.", std::string(100'000, 'n'), "\n");
  Put(tensors, {name, "F32", {1}, F32Bytes({1})});
  const std::string refusal = Refusal(Open(tensors));
  EXPECT_LT(refusal.size(), 1000u);
  EXPECT_EQ(refusal.find('\n'), std::string::npos);
}

TEST_F(FusedTest, ListsWhatThereIs) {
  Tensors tensors = Sample(Dialect::kModelOpt);
  Put(tensors, {"e.up_weight_scale", "U8", {1}, "x"});
  Put(tensors, {"q_proj.weight_scale", "U8", {1}, "x"});
  ASSERT_FALSE(Open(tensors, "nothing").ok());
  const auto checkpoint = Checkpoint::Open(root_, "");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT(ListProjections(*checkpoint),
              ElementsAre(ProjectionName{"e.up", 1}, ProjectionName{"l.experts.{expert}.up", 2},
                          ProjectionName{"q_proj", 1}));
}

}  // namespace
}  // namespace tetrad
