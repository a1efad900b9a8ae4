// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// sm90.invariance.different. A pool of tokens is multiplied once as one group of 2048
// rows; then parts of it are multiplied again in every way that must not matter, and the
// bits of each token's row compared:
//
//   M          64 values, all to 32 and those around every width and beyond
//   variant    every instance for each M (host M); in turn for device-side M
//   position   other rows of the group, in the other order, after another group
//   neighbours groups before and after with other rows of the pool, some empty
//   strides    dense and padded outputs; groups apart (token rows are prepared) and stacked
//   M source   host, counts, offsets
//
// FP32 outputs, in which any other order of sums shows, in turn with FP16 ones.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "bench/bars/cuda/sm90_figures.h"
#include "bench/bars/cuda/sm90_gpu.h"
#include "bench/bars/instance_of.h"
#include "bench/bars/placed_problem.h"
#include "engine/support/status_macros.h"
#include "kernels/float16.h"
#include "kernels/random.h"

namespace tetrad::bars {
namespace {

constexpr int32_t kPool = 2048, kN = 200, kK = 416;  // a partial strip, a rest of K
constexpr size_t kGroups = 3, kProbe = 1;            // the group that is looked at
constexpr int64_t kStridePadding = 24;
constexpr float kAlpha = 0x1p-8f;
constexpr int32_t kBeyond[] = {33,  40,  47,  48,  49,  63,  64,  65,  79,   80,  81,
                               95,  96,  97,  104, 111, 112, 113, 127, 128,  129, 167,
                               168, 169, 255, 256, 257, 384, 512, 777, 1024, 2048};
constexpr int32_t kSmall = 32;  // all M to this one
static_assert(kSmall + std::size(kBeyond) == 64);

// The rows of the pool that a group has, in order: from `first` on, up or down.
struct Rows {
  int32_t count = 0;
  int32_t first = 0;
  int32_t step = 1;
  int32_t Token(int32_t row) const { return (first + kPool + step * row) % kPool; }
};
using Layout = std::array<Rows, kGroups>;

std::byte RandomByte(Random& random) { return static_cast<std::byte>(random.Below(256)); }
// Over many exponents, never NaN.
std::byte RandomScale(Random& random) { return static_cast<std::byte>(0x08 + random.Below(0x70)); }

struct Pool {
  ActivationType type = ActivationType::kFp16;
  std::vector<std::byte> a, scales;
  int64_t row_bytes() const { return ActivationBytes(type, 1, kK); }
  int64_t scale_bytes() const { return scales.empty() ? 0 : kK / kScaleBlock; }
};

Pool MakePool(ActivationType type) {
  Random random(static_cast<uint64_t>(type) + 1);
  Pool pool{.type = type};
  if (type == ActivationType::kNvfp4) {
    for (int64_t i = 0; i < CodeBytes(kPool, kK); ++i) pool.a.push_back(RandomByte(random));
    for (int64_t i = 0; i < kPool * (kK / kScaleBlock); ++i) {
      pool.scales.push_back(RandomScale(random));
    }
    return pool;
  }
  for (int64_t i = 0; i < int64_t{kPool} * kK; ++i) {
    const float value = random.Normal();
    const uint16_t bits = type == ActivationType::kFp16 ? EncodeFp16(value) : EncodeBf16(value);
    pool.a.push_back(static_cast<std::byte>(bits & 0xFF));
    pool.a.push_back(static_cast<std::byte>(bits >> 8));
  }
  return pool;
}

WeightsImage RandomWeights() {
  Random random(99);
  WeightsImage image;
  image.groups.assign(kGroups, {kN, kK});
  for (int64_t i = 0; i < static_cast<int64_t>(kGroups) * CodeBytes(kN, kK); ++i) {
    image.codes.push_back(RandomByte(random));
  }
  for (int64_t i = 0; i < static_cast<int64_t>(kGroups) * kN * (kK / kScaleBlock); ++i) {
    image.scales.push_back(RandomScale(random));
  }
  image.alpha.assign(kGroups, kAlpha);
  return image;
}

// One way to multiply.
struct Way {
  Layout layout;
  OutputType output = OutputType::kFp32;
  GroupForm form = GroupForm::kStacked;
  MSource source = MSource::kHost;
  bool padded = false;                       // stride of C
  const sm90::Instance* instance = nullptr;  // null: the planner's
};

Signature SignatureOf(const Pool& pool, const Way& way) {
  Signature signature;
  signature.types.a_type = pool.type;
  signature.types.c_type = way.output;
  signature.form = way.form;
  signature.m_source = way.source;
  signature.c_stride = way.padded ? kN + kStridePadding : 0;
  int64_t most = 0, total = 0;
  for (const Rows& rows : way.layout) {
    signature.groups.push_back({way.source == MSource::kHost ? rows.count : 0, kN, kK});
    most = std::max<int64_t>(most, rows.count);
    total += rows.count;
  }
  if (way.source == MSource::kCounts) signature.capacity_rows = most + 5;
  if (way.source == MSource::kOffsets) signature.capacity_rows = total + 9;
  return signature;
}

// First row of each group in the stack of A and of C.
std::array<int64_t, kGroups> FirstRows(const Plan& plan, const Way& way) {
  std::array<int64_t, kGroups> first{};
  int64_t end = 0;
  for (size_t g = 0; g < kGroups; ++g) {
    first[g] = way.source == MSource::kCounts
                   ? static_cast<int64_t>(g) * plan.signature.capacity_rows
                   : end;
    end += way.layout[g].count;
  }
  return first;
}

ActivationImage ImageOf(const Pool& pool, const Plan& plan, const Way& way) {
  ActivationImage image{
      .a = std::vector<std::byte>(static_cast<size_t>(plan.layout.a_bytes)),
      .a_scales = std::vector<std::byte>(static_cast<size_t>(plan.layout.a_scale_bytes))};
  const auto first = FirstRows(plan, way);
  if (way.source == MSource::kOffsets) image.m_values.push_back(0);
  for (size_t g = 0; g < kGroups; ++g) {
    const Rows& rows = way.layout[g];
    const bool host = way.source == MSource::kHost;
    int64_t a = host ? plan.layout.groups[g].a : first[g] * pool.row_bytes();
    int64_t scales = host ? plan.layout.groups[g].a_scales : first[g] * pool.scale_bytes();
    for (int32_t row = 0; row < rows.count; ++row) {
      const int64_t token = rows.Token(row);
      std::copy_n(pool.a.begin() + token * pool.row_bytes(), pool.row_bytes(), image.a.begin() + a);
      std::copy_n(pool.scales.begin() + token * pool.scale_bytes(), pool.scale_bytes(),
                  image.a_scales.begin() + scales);
      a += pool.row_bytes();
      scales += pool.scale_bytes();
    }
    if (way.source == MSource::kCounts) image.m_values.push_back(rows.count);
    if (way.source == MSource::kOffsets) {
      image.m_values.push_back(image.m_values.back() + rows.count);
    }
  }
  return image;
}

// The probe's rows of C, one after the other.
absl::StatusOr<std::vector<std::byte>> Multiply(Gpu& gpu, const Pool& pool,
                                                const std::shared_ptr<const PlacedWeights>& weights,
                                                const Way& way) {
  const DeviceLimits& limits = gpu.device().limits();
  TETRAD_ASSIGN_OR_RETURN(Plan plan, PlanFor(limits, SignatureOf(pool, way), *weights));
  if (!plan.hopper.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat("planned with ", plan.kernel));
  }
  if (way.instance != nullptr) UseInstance(*way.instance, limits.ctas, plan);
  TETRAD_ASSIGN_OR_RETURN(
      const auto problem,
      PlacedProblem::Place(gpu.device(), std::make_shared<const Plan>(std::move(plan)), weights));
  const Plan& placed = problem->plan();
  TETRAD_RETURN_IF_ERROR(problem->WriteActivations(ImageOf(pool, placed, way)));
  TETRAD_RETURN_IF_ERROR(problem->Run().status());
  std::vector<std::byte> output;
  TETRAD_RETURN_IF_ERROR(problem->ReadOutput(output));
  const bool host = way.source == MSource::kHost;
  const int64_t element = OutputElementBytes(way.output);
  const int64_t stride =
      (host ? placed.layout.groups[kProbe].c_stride : placed.layout.c_stride) * element;
  const int64_t begin =
      host ? placed.layout.groups[kProbe].c : FirstRows(placed, way)[kProbe] * stride;
  std::vector<std::byte> rows;
  for (int64_t row = 0; row < way.layout[kProbe].count; ++row) {
    const auto from = output.begin() + begin + row * stride;
    rows.insert(rows.end(), from, from + kN * element);
  }
  return rows;
}

std::vector<Way> WaysOf(size_t number, int32_t m) {
  Way way;
  way.output = number % 2 == 0 ? OutputType::kFp32 : OutputType::kFp16;
  way.layout[0] = {.count = m * 7 % 130, .first = m * 101 % kPool};
  way.layout[kProbe] = {.count = m, .first = m * 37 % kPool, .step = number % 4 < 2 ? 1 : -1};
  way.layout[2] = {.count = m * 13 % 3 == 0 ? 0 : m * 13 % 70, .first = m * 211 % kPool};
  std::vector<Way> ways;
  for (size_t i = 0; i < std::size(sm90::kInstances); ++i) {
    way.instance = &sm90::kInstances[i];
    way.form = (number + i) % 2 == 0 ? GroupForm::kStacked : GroupForm::kSeparate;
    way.padded = (number + i) % 3 == 0;
    ways.push_back(way);
  }
  way.form = GroupForm::kStacked;
  way.padded = number % 3 == 0;
  for (const MSource source : {MSource::kCounts, MSource::kOffsets}) {
    way.source = source;
    way.instance =
        &sm90::kInstances[(number + static_cast<size_t>(source)) % std::size(sm90::kInstances)];
    ways.push_back(way);
  }
  return ways;
}

class Comparison {
 public:
  Comparison(Gpu& gpu, std::shared_ptr<const PlacedWeights> weights, Pool pool)
      : gpu_(gpu), weights_(std::move(weights)), pool_(std::move(pool)) {}

  absl::Status MakeReference() {
    for (const OutputType output : {OutputType::kFp16, OutputType::kFp32}) {
      Way way{.output = output, .form = GroupForm::kSeparate};
      way.layout[kProbe] = {.count = kPool};
      auto& reference = reference_[output == OutputType::kFp32 ? 1 : 0];
      TETRAD_ASSIGN_OR_RETURN(reference, Multiply(gpu_, pool_, weights_, way));
      const int64_t row_bytes = kN * OutputElementBytes(output);
      if (std::equal(reference.begin(), reference.begin() + row_bytes,
                     reference.begin() + row_bytes)) {
        return absl::InternalError("two tokens have the same output: nothing could be seen");
      }
    }
    return absl::OkStatus();
  }

  // How many tokens have other bits than in the reference.
  absl::StatusOr<int64_t> Count(const Way& way) {
    const std::vector<std::byte>& reference = reference_[way.output == OutputType::kFp32 ? 1 : 0];
    TETRAD_ASSIGN_OR_RETURN(const auto rows, Multiply(gpu_, pool_, weights_, way));
    const int64_t row_bytes = kN * OutputElementBytes(way.output);
    int64_t different = 0;
    for (int32_t row = 0; row < way.layout[kProbe].count; ++row) {
      const auto seen = rows.begin() + row * row_bytes;
      const int32_t token = way.layout[kProbe].Token(row);
      if (std::equal(seen, seen + row_bytes, reference.begin() + token * row_bytes)) continue;
      if (++different == 1) Tell(way, row, token);
    }
    return different;
  }

 private:
  void Tell(const Way& way, int32_t row, int32_t token) const {
    std::fprintf(stderr,
                 "tetrad-bars: sm90.invariance: type %d output %d m %d instance %s form %d source "
                 "%d padded %d: row %d (token %d) has other bits\n",
                 static_cast<int>(pool_.type), static_cast<int>(way.output),
                 way.layout[kProbe].count, way.instance == nullptr ? "chosen" : way.instance->name,
                 static_cast<int>(way.form), static_cast<int>(way.source), way.padded ? 1 : 0, row,
                 token);
  }

  Gpu& gpu_;
  const std::shared_ptr<const PlacedWeights> weights_;
  const Pool pool_;
  std::array<std::vector<std::byte>, 2> reference_;  // FP16, FP32
};

}  // namespace

absl::StatusOr<Measured> Sm90InvarianceDifferent(const Setting& setting) {
  TETRAD_ASSIGN_OR_RETURN(const auto gpu, OpenSm90(setting));
  TETRAD_ASSIGN_OR_RETURN(
      const auto weights,
      PlacedWeights::Place(gpu->device(), gpu->device().limits(), RandomWeights()));
  std::vector<int32_t> rows(kSmall);
  for (int32_t m = 1; m <= kSmall; ++m) rows[static_cast<size_t>(m - 1)] = m;
  rows.insert(rows.end(), std::begin(kBeyond), std::end(kBeyond));
  int64_t different = 0;
  for (const ActivationType type :
       {ActivationType::kFp16, ActivationType::kBf16, ActivationType::kNvfp4}) {
    Comparison comparison(*gpu, weights, MakePool(type));
    TETRAD_RETURN_IF_ERROR(comparison.MakeReference());
    for (size_t number = 0; number < rows.size(); ++number) {
      for (const Way& way : WaysOf(number, rows[number])) {
        TETRAD_ASSIGN_OR_RETURN(const int64_t found, comparison.Count(way));
        different += found;
      }
    }
  }
  return Counted(different);
}

}  // namespace tetrad::bars
