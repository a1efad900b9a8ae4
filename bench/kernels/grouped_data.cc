// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/kernels/grouped_data.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <thread>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"

#include "kernels/float16.h"
#include "kernels/nvfp4.h"
#include "kernels/random.h"

namespace tetrad::bars {
namespace {

// Calls work(begin, end) for parts of [0, count), each on a thread of its own.
void InParts(int64_t count, int threads, absl::FunctionRef<void(int64_t, int64_t)> work) {
  const int64_t parts = std::clamp<int64_t>(count / 65536, 1, std::max(threads, 1));
  std::vector<std::thread> running;
  for (int64_t part = 1; part < parts; ++part) {
    running.emplace_back(work, count * part / parts, count * (part + 1) / parts);
  }
  work(0, count / parts);
  for (std::thread& thread : running) thread.join();
}

// Word `index` of a seed: SplitMix64, whose state is a multiple of a constant.
uint64_t WordAt(uint64_t seed, int64_t index) {
  constexpr uint64_t kStep = 0x9E3779B97F4A7C15u;
  return Random(seed * 0xD1342543DE82EF95u + static_cast<uint64_t>(index) * kStep).Next();
}

std::vector<std::byte> MakeBytes(int64_t bytes, uint64_t seed, int threads,
                                 absl::FunctionRef<uint64_t(uint64_t)> map) {
  std::vector<std::byte> made(static_cast<size_t>(RoundUp(bytes, 8)));
  InParts(RoundUp(bytes, 8) / 8, threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t word = map(WordAt(seed, i));
      std::memcpy(&made[static_cast<size_t>(i * 8)], &word, 8);
    }
  });
  made.resize(static_cast<size_t>(bytes));
  return made;
}

double ActivationAt(const Plan& plan, const ActivationImage& image, size_t g, int64_t row,
                    int64_t k) {
  const GroupOffsets& at = plan.layout.groups[g];
  const ProblemTypes& types = plan.signature.types;
  const int64_t depth = plan.signature.groups[g].k;
  const auto* const a = reinterpret_cast<const uint8_t*>(image.a.data()) + at.a;
  if (types.a_type == ActivationType::kNvfp4) {
    const int64_t scale =
        at.a_scales + ScaleOffset(types.a_scale_layout, row, k / kScaleBlock, depth);
    return static_cast<double>(DecodeE2m1(UnpackCode(a + CodeBytes(row, depth), k))) *
           DecodeUe4m3(static_cast<uint8_t>(image.a_scales[static_cast<size_t>(scale)]));
  }
  uint16_t bits;
  std::memcpy(&bits, a + (row * depth + k) * 2, 2);
  return types.a_type == ActivationType::kFp16 ? DecodeFp16(bits) : DecodeBf16(bits);
}

}  // namespace

std::vector<std::byte> MakeCodes(int64_t bytes, uint64_t seed, int threads) {
  return MakeBytes(bytes, seed, threads, [](uint64_t word) { return word; });
}

std::vector<std::byte> MakeScales(int64_t bytes, uint64_t seed, int threads) {
  std::array<uint8_t, 256> scales;
  for (int i = 0; i < 256; ++i) {
    scales[static_cast<size_t>(i)] =
        EncodeUe4m3(0.25f + 1.75f * (static_cast<float>(i) + 0.5f) / 256);
  }
  return MakeBytes(bytes, seed, threads, [&scales](uint64_t word) {
    uint64_t mapped = 0;
    for (int byte = 0; byte < 64; byte += 8) {
      mapped |= static_cast<uint64_t>(scales[word >> byte & 0xFF]) << byte;
    }
    return mapped;
  });
}

std::vector<std::byte> Dequantise(ActivationType to, std::span<const std::byte> codes,
                                  std::span<const std::byte> scales, int threads) {
  // Two numbers of each byte of codes under each scale.
  using Pairs = std::array<std::array<uint32_t, 256>, 256>;
  const auto pairs = std::make_unique<Pairs>();
  const auto encode = [to](float value) -> uint32_t {
    return to == ActivationType::kFp16 ? EncodeFp16(value) : EncodeBf16(value);
  };
  for (int scale = 0; scale < 256; ++scale) {
    for (int pair = 0; pair < 256; ++pair) {
      const float by = DecodeUe4m3(static_cast<uint8_t>(scale));
      (*pairs)[static_cast<size_t>(scale)][static_cast<size_t>(pair)] =
          encode(DecodeE2m1(static_cast<uint8_t>(pair & 0xF)) * by) |
          encode(DecodeE2m1(static_cast<uint8_t>(pair >> 4)) * by) << 16;
    }
  }
  std::vector<std::byte> values(codes.size() * 4);
  constexpr int64_t kBytesPerScale = kScaleBlock / 2;
  InParts(static_cast<int64_t>(scales.size()), threads, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const auto& of_scale = (*pairs)[static_cast<size_t>(scales[static_cast<size_t>(block)])];
      for (int64_t i = block * kBytesPerScale; i < (block + 1) * kBytesPerScale; ++i) {
        const uint32_t pair = of_scale[static_cast<size_t>(codes[static_cast<size_t>(i)])];
        std::memcpy(&values[static_cast<size_t>(i * 4)], &pair, 4);
      }
    }
  });
  return values;
}

WeightsImage MakeWeights(std::span<const GroupShape> shapes, uint64_t seed, int threads) {
  WeightsImage image;
  int64_t codes = 0, scales = 0;
  for (const GroupShape& shape : shapes) {
    image.groups.push_back({shape.n, shape.k});
    codes += CodeBytes(shape.n, shape.k);
    scales += ScalePlaneBytes(image.scale_layout, shape.n, shape.k);
  }
  image.codes = MakeCodes(codes, seed, threads);
  image.scales = MakeScales(scales, seed + 1, threads);
  image.alpha.assign(shapes.size(), 1.0f);
  return image;
}

ActivationImage MakeActivations(const Plan& plan, uint64_t seed, int threads) {
  const OperandLayout& layout = plan.layout;
  const ActivationType type = plan.signature.types.a_type;
  ActivationImage image;
  if (type == ActivationType::kNvfp4) {
    image.a = MakeCodes(layout.a_bytes, seed, threads);
    image.a_scales = MakeScales(layout.a_scale_bytes, seed + 1, threads);
    return image;
  }
  // Gaps between groups apart get numbers too; nothing reads them.
  const int64_t blocks = CeilDiv(layout.a_bytes, kScaleBlock * 2);
  image.a = Dequantise(type, MakeCodes(blocks * kScaleBlock / 2, seed, threads),
                       MakeScales(blocks, seed + 1, threads), threads);
  image.a.resize(static_cast<size_t>(layout.a_bytes));
  return image;
}

int64_t CountWrong(const Plan& plan, const WeightsImage& weights, const ActivationImage& a,
                   std::span<const std::byte> output, int64_t samples, uint64_t seed,
                   std::string& first) {
  const std::vector<GroupShape>& groups = plan.signature.groups;
  std::vector<int64_t> code_begin, scale_begin;
  std::vector<size_t> filled;  // groups with rows
  int64_t codes = 0, scales = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    code_begin.push_back(codes);
    scale_begin.push_back(scales);
    codes += CodeBytes(groups[g].n, groups[g].k);
    scales += ScalePlaneBytes(weights.scale_layout, groups[g].n, groups[g].k);
    if (groups[g].m > 0) filled.push_back(g);
  }
  if (filled.empty()) return 0;
  Random random(seed);
  int64_t wrong = 0;
  for (int64_t sample = 0; sample < samples; ++sample) {
    const size_t g = filled[random.Below(static_cast<uint32_t>(filled.size()))];
    const GroupShape& shape = groups[g];
    const int64_t m = random.Below(static_cast<uint32_t>(shape.m));
    const int64_t n = random.Below(static_cast<uint32_t>(shape.n));
    const auto* const row = reinterpret_cast<const uint8_t*>(weights.codes.data()) + code_begin[g] +
                            CodeBytes(n, shape.k);
    double sum = 0, magnitude = 0;
    for (int64_t k = 0; k < shape.k; ++k) {
      const int64_t scale =
          scale_begin[g] + ScaleOffset(weights.scale_layout, n, k / kScaleBlock, shape.k);
      const double product =
          ActivationAt(plan, a, g, m, k) * static_cast<double>(DecodeE2m1(UnpackCode(row, k))) *
          DecodeUe4m3(static_cast<uint8_t>(weights.scales[static_cast<size_t>(scale)]));
      sum += product;
      magnitude += std::abs(product);
    }
    const double expected = sum * weights.alpha[g];
    const GroupOffsets& at = plan.layout.groups[g];
    uint16_t bits;
    std::memcpy(&bits, &output[static_cast<size_t>(at.c + (m * at.c_stride + n) * 2)], 2);
    const double seen = DecodeFp16(bits);
    // Half a unit of FP16, and a truncated bit of FP32 in each of K / 8 additions.
    const double bound = std::abs(expected) * 0x1p-11 + 0x1p-24 +
                         magnitude * weights.alpha[g] * static_cast<double>(shape.k) * 0x1p-27;
    if (std::abs(seen - expected) <= bound) continue;  // false for NaN
    if (++wrong > 1) continue;
    first = absl::StrCat("group ", g, " row ", m, " column ", n, ": ", seen, ", not ", expected,
                         " within ", bound);
  }
  return wrong;
}

}  // namespace tetrad::bars
