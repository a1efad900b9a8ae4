// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/kernels/kernel_case.h"

#include <cstring>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/kernels/child_program.h"
#include "bench/kernels/grouped_data.h"
#include "bench/kernels/rotation.h"
#include "bench/kernels/torch_peers.h"
#include "clients/cli/grouped_case.h"
#include "engine/cpu_device.h"
#include "kernels/float16.h"
#include "kernels/shapes.h"

namespace tetrad::bars {
namespace {

using ::testing::HasSubstr;

TEST(RotationTest, AtLeastThreeSetsOf200MegabytesTogether) {
  EXPECT_EQ(SetsFor(1e9), 3);
  EXPECT_EQ(SetsFor(67e6), 3);
  EXPECT_EQ(SetsFor(66e6), 4);
  EXPECT_EQ(SetsFor(8e6), 25);
}

TEST(RotationTest, AtLeastTwentyCallsAMillisecondAndWholeRounds) {
  EXPECT_EQ(CallsFor(3, 100), 21);
  EXPECT_EQ(CallsFor(25, 10), 100);
  EXPECT_EQ(CallsFor(3, 0.1), 201);
  EXPECT_EQ(CallsFor(25, 1e4), 25);
}

TEST(GroupedDataTest, BytesDependOnSeedAndPlaceNotOnThreads) {
  constexpr int64_t kBytes = (1 << 20) + 3;
  EXPECT_EQ(MakeCodes(kBytes, 1, 1), MakeCodes(kBytes, 1, 3));
  EXPECT_EQ(MakeScales(kBytes, 1, 1), MakeScales(kBytes, 1, 3));
  EXPECT_NE(MakeCodes(64, 1, 1), MakeCodes(64, 2, 1));
  EXPECT_EQ(MakeCodes(3, 1, 1).size(), 3u);
}

TEST(GroupedDataTest, ScalesFillTheRangeAndCodesAreAllThere) {
  bool seen[256] = {};
  for (const std::byte code : MakeCodes(1 << 16, 1, 1)) seen[static_cast<int>(code)] = true;
  for (const bool one : seen) EXPECT_TRUE(one);
  float least = 9, most = 0;
  for (const std::byte scale : MakeScales(1 << 16, 1, 1)) {
    const float value = DecodeUe4m3(static_cast<uint8_t>(scale));
    least = std::min(least, value);
    most = std::max(most, value);
  }
  EXPECT_EQ(least, 0.25f);
  EXPECT_EQ(most, 2.0f);  // what is nearest to the last of them
}

TEST(GroupedDataTest, DequantisedNumbersAreCodeTimesScale) {
  const auto codes = MakeCodes(1 << 19, 3, 1), scales = MakeScales(1 << 16, 4, 1);
  for (const ActivationType type : {ActivationType::kFp16, ActivationType::kBf16}) {
    const auto values = Dequantise(type, codes, scales, 3);
    ASSERT_EQ(values.size(), codes.size() * 4);
    for (size_t i = 0; i < codes.size() * 2; i += 37) {
      uint16_t bits;
      std::memcpy(&bits, &values[i * 2], 2);
      const float expected = DecodeE2m1(UnpackCode(reinterpret_cast<const uint8_t*>(codes.data()),
                                                   static_cast<int64_t>(i))) *
                             DecodeUe4m3(static_cast<uint8_t>(scales[i / 16]));
      EXPECT_EQ(type == ActivationType::kFp16 ? DecodeFp16(bits) : DecodeBf16(bits), expected);
    }
  }
}

// What a device computes passes; an output with one wrong group does not.
TEST(GroupedDataTest, TheSampleTellsRightFromWrong) {
  const auto device = CpuDevice::Create({.threads = 1, .measure_rates = false}, [] {});
  ASSERT_TRUE(device.ok());
  const auto shapes = GroupsOf(96, 320, 5, 0, 70);
  const WeightsImage image = MakeWeights(shapes, 1, 1);
  const auto weights = PlacedWeights::Place(**device, (*device)->limits(), image);
  ASSERT_TRUE(weights.ok());
  for (const ActivationType type :
       {ActivationType::kNvfp4, ActivationType::kFp16, ActivationType::kBf16}) {
    Signature signature;
    signature.types.a_type = type;
    if (type == ActivationType::kNvfp4) signature.types.a_scale_layout = ScaleLayout::kBlocked;
    signature.form = GroupForm::kStacked;
    signature.groups.assign(shapes.begin(), shapes.end());
    const auto problem = PlacedProblem::Place(**device, (*device)->limits(), signature, *weights);
    ASSERT_TRUE(problem.ok()) << problem.status();
    const Plan& plan = (*problem)->plan();
    const ActivationImage a = MakeActivations(plan, 2, 1);
    ASSERT_TRUE((*problem)->WriteActivations(a).ok());
    ASSERT_TRUE((*problem)->Run().ok());
    std::vector<std::byte> output;
    ASSERT_TRUE((*problem)->ReadOutput(output).ok());
    std::string first;
    EXPECT_EQ(CountWrong(plan, image, a, output, 500, 7, first), 0) << first;
    // One bit of each number of the first group: about a hundredth of it.
    for (int64_t i = 0; i < 5 * 96; ++i) {
      output[static_cast<size_t>(plan.layout.groups[0].c + i * 2)] ^= std::byte{0x10};
    }
    EXPECT_GT(CountWrong(plan, image, a, output, 500, 7, first), 150);
    EXPECT_THAT(first, HasSubstr("group 0 row"));
  }
}

TEST(TorchPeersTest, InputAndOutput) {
  const PeerShape shape{"S", {{8, 4096, 7168}, {0, 4096, 7168}}};
  EXPECT_EQ(TorchInput({&shape, 1}),
            R"([{"calls":88,"id":"S","k":7168,"m":[8,0],"n":4096,"sets":4}])");
  const auto times =
      ParseTorchOutput(R"({"S":{"torch_grouped_mm":[2,1,3],"other":"RuntimeError: no"}})");
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_EQ(times->at("S").at(kTorchGrouped)->value, 2);
  EXPECT_EQ(times->at("S").at(kTorchGrouped)->high, 3);
  EXPECT_THAT(times->at("S").at("other").status().message(), HasSubstr("no"));
  for (const char* text : {"", "[]", R"({"S":1})", R"({"S":{"p":[1,2]}})", R"({"S":{"p":null}})"}) {
    EXPECT_FALSE(ParseTorchOutput(text).ok()) << text;
  }
}

TEST(KernelCaseTest, LinesOfACase) {
  const auto cases = ParseKernelCases(
      "# id,G,K,N,M,activation,output\n\nS4, 2,1536,4096,128 "
      "384,nvfp4,fp16\nx,1,32,1,0,bf16,fp16\n");
  ASSERT_TRUE(cases.ok()) << cases.status();
  ASSERT_EQ(cases->size(), 2u);
  EXPECT_EQ((*cases)[0].id, "S4");
  EXPECT_EQ((*cases)[0].groups, std::vector<GroupShape>(kShapeS4.begin(), kShapeS4.end()));
  EXPECT_EQ((*cases)[0].activations, ActivationType::kNvfp4);
  EXPECT_EQ((*cases)[1].activations, ActivationType::kBf16);
}

TEST(KernelCaseTest, WhatIsNoCaseIsNamed) {
  for (const auto& [line, expected] :
       {std::pair("a,1,32,1,1,fp16", "line 1: 6 fields, wanted 7"),
        std::pair("a,2,32,1,1,fp16,fp16", "1 M for 2 groups"),
        std::pair("a,1,33,1,1,fp16,fp16", "K 33 is no multiple of 32"),
        std::pair("a,1,32,0,1,fp16,fp16", "N '0' is no number"),
        std::pair("a,1,32,1,-1,fp16,fp16", "M '-1' is no number"),
        std::pair("a,1,32,1,1,fp8,fp16", "unknown activation 'fp8'"),
        std::pair("a,1,32,1,1,fp16,fp32", "output 'fp32' is not timed"),
        std::pair("a,1,32,1,1,fp16,fp16\na,1,32,1,2,bf16,fp16",
                  "line 2: a had other groups before"),
        std::pair(",1,32,1,1,fp16,fp16", "no id")}) {
    EXPECT_THAT(ParseKernelCases(line).status().message(), HasSubstr(expected));
  }
}

TEST(KernelCaseTest, TheCasesThatComeWithItAreTheNamedShapes) {
  const auto cases = ReadKernelCases("bench/kernels/cases.csv");
  ASSERT_TRUE(cases.ok()) << cases.status();
  EXPECT_EQ(cases->size(), 24u);
  for (const KernelCase& c : *cases) {
    const auto shape = cli::FindShape(c.id);
    ASSERT_TRUE(shape.has_value()) << c.id;
    EXPECT_EQ(c.groups, std::vector<GroupShape>(shape->groups.begin(), shape->groups.end()))
        << c.id;
  }
}

TEST(KernelCaseTest, ALineHasWhatWasMeasured) {
  const KernelCase c{"x", {{8, 64, 32}, {0, 64, 32}}, ActivationType::kNvfp4};
  TypeTiming timing{.kernel = "k", .explanation = "e", .sets = 3, .calls = 21};
  timing.rates = {.flops_per_second = 8e14, .read_bytes_per_second = 4e12};
  Signature signature;
  signature.groups = c.groups;
  timing.floor = ComputeFloor(signature, timing.rates);
  timing.cold_us = {.value = 2, .low = 1, .high = 3};
  const CasePeers peers = {{"p", Measured{.value = 4, .low = 4, .high = 5}},
                           {"q", absl::UnavailableError("none")}};
  const auto line = JsonOf(c, timing, peers);
  EXPECT_EQ(line["activation"], "nvfp4");
  EXPECT_EQ(line["m"].dump(), "[8,0]");
  EXPECT_EQ(line["flops"], 2.0 * 8 * 64 * 32);
  // Weights of the group with rows, its activations, C.
  EXPECT_EQ(line["bytes"], 64 * 32 * 0.5625 + 8 * 32 * 0.5625 + 8 * 64 * 2);
  EXPECT_EQ(line["memory_floor_us"], timing.floor.bytes / 4e6);
  EXPECT_EQ(line["product_tflops"], 800);
  EXPECT_EQ(line["cold_us"].dump(), "[2.0,1.0,3.0]");
  EXPECT_EQ(line["peers"].dump(), R"({"p":[4.0,4.0,5.0],"q":"none"})");
}

TEST(ChildProgramTest, OutputOrWhyThereIsNone) {
  const std::string large(1 << 20, 'x');
  EXPECT_EQ(RunChild({"cat"}, large).value(), large);
  EXPECT_THAT(RunChild({"sh", "-c", "exit 3"}, "").status().message(), HasSubstr("exit status 3"));
  EXPECT_FALSE(RunChild({"no-such-program-of-tetrad"}, "").ok());
}

}  // namespace
}  // namespace tetrad::bars
