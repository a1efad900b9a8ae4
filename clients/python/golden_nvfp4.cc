// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the daemon's own code makes of given numbers, as lines of JSON, for the
// Python package to be compared with: tests/golden/nvfp4.jsonl is this program's
// output, and a test holds it against the program. Small cases have operands, codes
// and scales in full, as the hex of their bytes; what is large is a CRC-32, with
// operands that both sides compute from the index.
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "kernels/float16.h"
#include "kernels/nvfp4.h"
#include "kernels/quantize.h"

namespace tetrad {
namespace {

template <typename T>
std::string Hex(std::span<const T> values) {
  std::string text;
  for (const uint8_t byte :
       std::span(reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes())) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", byte);
    text += digits;
  }
  return text;
}
template <typename T>
std::string Hex(const std::vector<T>& values) {
  return Hex(std::span<const T>(values));
}

template <typename T>
uint32_t Crc32(const std::vector<T>& values) {
  uint32_t crc = ~0u;
  for (const uint8_t byte :
       std::span(reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T))) {
    crc ^= byte;
    for (int i = 0; i < 8; ++i) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320u : 0);
  }
  return ~crc;
}

// Well mixed bits of an index.
uint32_t Mixed(uint64_t index) {
  uint64_t z = (index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return static_cast<uint32_t>((z ^ (z >> 31)) >> 32);
}

struct Case {
  std::string name;
  FloatType type = FloatType::kFp32;
  int64_t rows = 0;
  int64_t k = 0;
  std::vector<uint8_t> data;
  float global_scale = 1;
  std::vector<float> row_scale = {};
};

template <typename T>
std::vector<uint8_t> Bytes(const std::vector<T>& values) {
  const auto* begin = reinterpret_cast<const uint8_t*>(values.data());
  return {begin, begin + values.size() * sizeof(T)};
}

FloatMatrix Matrix(const Case& c) {
  return {.data = c.data.data(), .type = c.type, .rows = c.rows, .k = c.k, .row_stride = c.k};
}

struct Outcome {
  bool ok = false;
  std::vector<uint8_t> codes, linear, blocked;
  std::vector<float> values;
};

Outcome Run(const Case& c) {
  Outcome out;
  out.codes.resize(CodeBytes(c.rows, c.k));
  out.linear.resize(ScalePlaneBytes(ScaleLayout::kLinear, c.rows, c.k));
  out.blocked.resize(ScalePlaneBytes(ScaleLayout::kBlocked, c.rows, c.k));
  out.values.resize(c.rows * c.k);
  out.ok = Quantize(Matrix(c), c.global_scale, c.row_scale,
                    {out.codes.data(), out.blocked.data(), ScaleLayout::kBlocked})
               .ok() &&
           Quantize(Matrix(c), c.global_scale, c.row_scale,
                    {out.codes.data(), out.linear.data(), ScaleLayout::kLinear})
               .ok();
  if (!out.ok) return out;
  Dequantize(out.codes.data(), out.blocked.data(), ScaleLayout::kBlocked, c.rows, c.k,
             c.global_scale, c.row_scale, out.values.data(), c.k);
  return out;
}

void PrintCase(const Case& c) {
  const Outcome out = Run(c);
  std::printf(
      R"({"case":"%s","type":%d,"rows":%d,"k":%d,"x":"%s","global_scale":"%s","row_scale":"%s")",
      c.name.c_str(), static_cast<int>(c.type), static_cast<int>(c.rows), static_cast<int>(c.k),
      Hex(c.data).c_str(), Hex(std::span<const float>(&c.global_scale, 1)).c_str(),
      Hex(c.row_scale).c_str());
  if (!out.ok) {
    std::printf(",\"refused\":true}\n");
    return;
  }
  std::vector<float> own(c.rows);
  const bool scaled = RowScales(Matrix(c), own).ok();
  std::printf(R"(,"codes":"%s","linear":"%s","blocked":%u,"values":%u,"row_scales":"%s"})"
              "\n",
              Hex(out.codes).c_str(), Hex(out.linear).c_str(), Crc32(out.blocked),
              Crc32(out.values), scaled ? Hex(own).c_str() : "");
}

constexpr int64_t kRow = 32;

Case OfValues(std::string name, std::vector<float> values, float global_scale = 1) {
  values.resize((values.size() + kRow - 1) / kRow * kRow);
  return {std::move(name), FloatType::kFp32, static_cast<int64_t>(values.size()) / kRow, kRow,
          Bytes(values),   global_scale};
}

// Around each midpoint of codes, in blocks whose scale is 1 (6 leads each).
Case Ties() {
  std::vector<float> values;
  for (const float sign : {1.0f, -1.0f}) {
    for (const float tie : {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f}) {
      if (values.size() % kScaleBlock == 0) values.push_back(6);
      for (const float x : {std::nextafter(tie, 0.0f), tie, std::nextafter(tie, 9.0f)}) {
        if (values.size() % kScaleBlock == 0) values.push_back(6);
        values.push_back(sign * x);
      }
    }
  }
  return OfValues("ties of codes", std::move(values));
}

// A block for each scale byte and each midpoint after it, with both neighbours.
Case ScaleTies() {
  std::vector<float> values;
  for (int byte = 0; byte < 0x7E; ++byte) {
    const float tie =
        (DecodeUe4m3(static_cast<uint8_t>(byte)) + DecodeUe4m3(static_cast<uint8_t>(byte + 1))) / 2;
    for (const float scale : {std::nextafter(tie, 0.0f), tie, std::nextafter(tie, 999.0f)}) {
      values.push_back(6 * scale);
      values.push_back(-2.5f * scale);
      values.resize((values.size() + kScaleBlock - 1) / kScaleBlock * kScaleBlock);
    }
  }
  return OfValues("ties of scales", std::move(values));
}

// The floats next to midpoint * scale * factor, where that product needs more bits than
// FP32 has: rounding it on the way decides wrongly.
Case DecidedExactly() {
  Case c{"codes decided exactly", FloatType::kFp32, 8, kRow, {}};
  std::vector<float> values;
  for (int row = 0; row < c.rows; ++row) {
    const float factor = std::bit_cast<float>(0x3F000001u + Mixed(row) % 0x7FFFFF);
    c.row_scale.push_back(factor);
    for (const float scale : {1.875f, 1.625f}) {
      values.push_back(6 * scale * factor);
      for (const double tie : {1.25, 1.75, 2.5, 3.5, 5.0}) {
        const auto x = static_cast<float>(tie * scale * factor);
        for (const float each : {std::nextafter(x, 0.0f), x, std::nextafter(x, 99.0f)}) {
          values.push_back(each);
        }
      }
    }
  }
  c.data = Bytes(values);
  return c;
}

// Bit patterns of every kind under some factor, without what is refused.
Case Random(const char* name, FloatType type, int64_t rows, int64_t k, float global_scale,
            bool with_row_scale, uint32_t seed) {
  Case c{name, type, rows, k, {}, global_scale};
  std::vector<float> wide;
  std::vector<uint16_t> narrow;
  for (int64_t i = 0; i < rows * k; ++i) {
    const uint32_t bits = Mixed(seed + i);
    if (type == FloatType::kFp32) {
      wide.push_back(std::bit_cast<float>((bits & 0x807FFFFFu) | (115 + bits / 4 % 16) << 23));
    } else if (type == FloatType::kFp16) {
      narrow.push_back(static_cast<uint16_t>((bits & 0x83FFu) | (8 + bits / 65536 % 16) << 10));
    } else {
      narrow.push_back(static_cast<uint16_t>((bits & 0x807Fu) | (115 + bits / 65536 % 16) << 7));
    }
  }
  c.data = type == FloatType::kFp32 ? Bytes(wide) : Bytes(narrow);
  for (int64_t row = 0; with_row_scale && row < rows; ++row) {
    c.row_scale.push_back(std::ldexp(1.0f + Mixed(seed + 77 * row) % 1024 / 1024.0f, row % 5 - 4));
  }
  return c;
}

std::vector<Case> Cases() {
  constexpr float kTop = std::numeric_limits<float>::max();
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  constexpr float kLeast = std::numeric_limits<float>::min();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  std::vector<Case> cases = {
      Ties(),
      ScaleTies(),
      DecidedExactly(),
      OfValues("zeros", {0.0f, -0.0f, 0.0f}),
      OfValues("signed zero in a live block", {6.0f, -0.0f, 0.0f, -0x1p-20f}),
      OfValues("saturation", {2688, 2689, -1e9f, 3e38f, 448, 447}),
      OfValues("top under the largest factor", {kTop, -kTop, 1, kTop / 2}, kTop / 6),
      OfValues("subnormals", {kTiny, -3 * kTiny, kLeast, kLeast / 2, 5 * kTiny}, kLeast),
      OfValues("subnormals under 1", {kTiny, kLeast}),
      OfValues("least scale", {6 * 0x1p-9f, 6 * 0x1p-10f, 3 * 0x1p-10f, 0x1p-12f}),
      OfValues("scale rounds to zero", {6 * 0x1p-10f, -6 * 0x1p-10f}),
      OfValues("odd factor", {1, 2, 3, 4, 5, 6, 7, 8, 0.1f, 0.2f, 0.3f}, 0.0123f),
      Random("fp32", FloatType::kFp32, 3, 96, 0.37f, false, 1),
      Random("fp32 with factors of rows", FloatType::kFp32, 5, 64, 0.011f, true, 1000),
      Random("fp16", FloatType::kFp16, 3, 64, 1.0f, false, 2000),
      Random("bf16", FloatType::kBf16, 3, 64, 0.5f, true, 3000),
      OfValues("refused: NaN", {1, kNan}),
      OfValues("refused: infinity", {1, 2, -kInfinity}),
      OfValues("refused: global scale 0", {1}, 0.0f),
      OfValues("refused: negative global scale", {1}, -1.0f),
      OfValues("refused: subnormal global scale", {1}, kLeast / 2),
      OfValues("refused: sixfold overflows", {1}, std::nextafter(kTop / 6, kInfinity)),
      OfValues("refused: quotient overflows", {kTop}, kLeast),
      OfValues("refused: infinite global scale", {1}, kInfinity)};
  Case factor = OfValues("refused: factor of a row underflows", {1}, 0x1p-100f);
  factor.row_scale = {0x1p-100f};
  cases.push_back(std::move(factor));
  return cases;
}

void PrintTables() {
  std::vector<uint8_t> e2m1, ue4m3, half_e2m1, half_ue4m3;
  std::vector<float> bf16, pairs;
  std::vector<uint16_t> rounded;
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    e2m1.push_back(EncodeE2m1(DecodeBf16(bits)));
    ue4m3.push_back(EncodeUe4m3(DecodeBf16(bits)));
    half_e2m1.push_back(EncodeE2m1(DecodeFp16(bits)));
    half_ue4m3.push_back(EncodeUe4m3(DecodeFp16(bits)));
    bf16.push_back(DecodeBf16(bits));
    // Each BF16 with a lower half that rounds down, ties and rounds up in turn.
    constexpr uint32_t kLower[] = {0x7FFF, 0x8000, 0x8001};
    rounded.push_back(EncodeBf16(std::bit_cast<float>(i << 16 | kLower[i % 3])));
    pairs.push_back(DecodeE2m1(static_cast<uint8_t>(i & 15)) *
                    DecodeUe4m3(static_cast<uint8_t>(i >> 8)));
  }
  for (float& value : pairs) {  // NaN carries no sign that counts
    if (IsNanBits(value)) value = std::bit_cast<float>(kCanonicalNanFp32);
  }
  std::printf(R"({"table":"bf16 patterns to e2m1","crc":%u})"
              "\n",
              Crc32(e2m1));
  std::printf(R"({"table":"bf16 patterns to ue4m3","crc":%u})"
              "\n",
              Crc32(ue4m3));
  std::printf(R"({"table":"fp16 patterns to e2m1","crc":%u})"
              "\n",
              Crc32(half_e2m1));
  std::printf(R"({"table":"fp16 patterns to ue4m3","crc":%u})"
              "\n",
              Crc32(half_ue4m3));
  std::printf(R"({"table":"bf16 patterns to fp32","crc":%u})"
              "\n",
              Crc32(bf16));
  std::printf(R"({"table":"fp32 to bf16","crc":%u})"
              "\n",
              Crc32(rounded));
  std::printf(R"({"table":"products of codes and scales","crc":%u})"
              "\n",
              Crc32(pairs));
}

// Large enough for each path of a vectorised implementation, several tiles each way.
void PrintLarge() {
  for (const auto type : {FloatType::kFp32, FloatType::kFp16, FloatType::kBf16}) {
    const Case c = Random("large", type, 1100, 1056, 0.0371f, true, 1u << 20);
    const Outcome out = Run(c);
    std::printf(
        R"({"large":%d,"rows":%d,"k":%d,"seed":%u,"x":%u,"global_scale":"%s","row_scale":%u,)"
        R"("codes":%u,"linear":%u,"blocked":%u,"values":%u})"
        "\n",
        static_cast<int>(type), static_cast<int>(c.rows), static_cast<int>(c.k), 1u << 20,
        Crc32(c.data), Hex(std::span<const float>(&c.global_scale, 1)).c_str(), Crc32(c.row_scale),
        Crc32(out.codes), Crc32(out.linear), Crc32(out.blocked), Crc32(out.values));
  }
}

}  // namespace
}  // namespace tetrad

int main() {
  for (const tetrad::Case& c : tetrad::Cases()) tetrad::PrintCase(c);
  tetrad::PrintTables();
  tetrad::PrintLarge();
}
