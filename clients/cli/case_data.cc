// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/case_data.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <span>
#include <thread>
#include <utility>

#include "kernels/random.h"
#include "kernels/sample_fill.h"

namespace tetrad::cli {
namespace {

// A seed per purpose and group, so that groups can be filled in any order.
uint64_t SubSeed(uint64_t seed, uint64_t index) {
  return Random(seed + Random(index).Next()).Next();
}
constexpr uint64_t kJunkStream = 1ull << 40;  // beyond any group
constexpr uint64_t kAlphaStream = kJunkStream + 1;

template <typename Work>
void ForEachGroup(size_t groups, int threads, const Work& work) {
  std::atomic<size_t> next{0};
  const auto loop = [&] {
    for (size_t g = next++; g < groups; g = next++) work(g);
  };
  std::vector<std::jthread> helpers;
  for (size_t t = 1; t < std::min<size_t>(groups, threads); ++t) helpers.emplace_back(loop);
  loop();
}

void FillStringWithJunk(Random& random, std::string* bytes, int64_t size) {
  bytes->resize(static_cast<size_t>(size));
  FillJunk(random, std::as_writable_bytes(std::span<char>(bytes->data(), bytes->size())));
}

const uint8_t* At(const std::string& bytes, int64_t offset) {
  return reinterpret_cast<const uint8_t*>(bytes.data()) + offset;
}
uint8_t* At(std::string* bytes, int64_t offset) {
  return reinterpret_cast<uint8_t*>(bytes->data()) + offset;
}

}  // namespace

CaseData::CaseData(const GroupedCase& c, DataKind kind, uint64_t seed, int threads)
    : case_(c), layout_(LayOutOnWire(c)) {
  int64_t codes = 0, scales = 0;
  for (const CaseGroup& g : case_.groups) {
    code_offsets_.push_back(codes);
    scale_offsets_.push_back(scales);
    codes += CodeBytes(g.n, g.k);
    scales += ScalePlaneBytes(case_.types.b_scale_layout, g.n, g.k);
  }
  codes_.resize(static_cast<size_t>(codes));
  scales_.resize(static_cast<size_t>(scales));
  Fill(kind, seed, threads);
  for (const int32_t value : MValues(case_)) {
    request_.mutable_inline_operands()->add_m_values(value);
  }
}

void CaseData::Fill(DataKind kind, uint64_t seed, int threads) {
  v1::InlineOperands& operands = *request_.mutable_inline_operands();
  Random junk(SubSeed(seed, kJunkStream));
  FillStringWithJunk(junk, operands.mutable_activations(), layout_.a_bytes);
  if (case_.types.a_type == ActivationType::kNvfp4) {
    FillStringWithJunk(junk, operands.mutable_activation_scales(), layout_.a_scale_bytes);
  }
  FillJunk(junk, std::as_writable_bytes(std::span<uint8_t>(scales_)));
  if (case_.row_scale) {
    // A dead row that is used after all overflows visibly.
    operands.mutable_row_scale()->Resize(static_cast<int>(case_.rows()),
                                         std::numeric_limits<float>::max());
  }
  std::string* a = operands.mutable_activations();
  std::string* a_scales = operands.mutable_activation_scales();
  std::vector<float> chosen(case_.groups.size());
  ForEachGroup(case_.groups.size(), threads, [&](size_t g) {
    const CaseGroup& group = case_.groups[g];
    const WireGroup& wire = layout_.groups[g];
    const Destination to{.a = At(a, wire.a),
                         .a_scales = At(a_scales, wire.a_scales),
                         .b = codes_.data() + code_offsets_[g],
                         .b_scales = scales_.data() + scale_offsets_[g],
                         .row_scale = case_.row_scale
                                          ? operands.mutable_row_scale()->mutable_data() + wire.row
                                          : nullptr};
    GroupProblem problem{.a = to.a,
                         .a_scales = to.a_scales,
                         .b = to.b,
                         .b_scales = to.b_scales,
                         .row_scale = to.row_scale,
                         .m = group.m,
                         .n = group.n,
                         .k = group.k};
    Random random(SubSeed(seed, g));
    FillGroup(case_.types, kind, random, to, &problem);
    chosen[g] = problem.alpha;
  });
  ChooseAlphas(seed, chosen);
}

// Splits the alpha that suits the data between the two operands.
void CaseData::ChooseAlphas(uint64_t seed, const std::vector<float>& chosen) {
  Random random(SubSeed(seed, kAlphaStream));
  auto* alpha_a = request_.mutable_inline_operands()->mutable_alpha();
  for (const float suited : chosen) {
    float a = 1, b = 1;
    if (case_.alpha_a && case_.alpha_b) {
      a = random.Significand();
      b = suited / a;
    } else if (case_.alpha_a) {
      a = suited;
    } else if (case_.alpha_b) {
      b = suited;
    }
    alpha_.push_back(a * b);
    if (case_.alpha_a) alpha_a->Add(a);
    if (case_.alpha_b) alpha_b_.push_back(b);
  }
}

std::vector<GroupProblem> CaseData::Problems(const std::string& output) const {
  const v1::InlineOperands& operands = request_.inline_operands();
  const bool nvfp4 = case_.types.a_type == ActivationType::kNvfp4;
  std::vector<GroupProblem> problems;
  for (size_t g = 0; g < case_.groups.size(); ++g) {
    const CaseGroup& group = case_.groups[g];
    const WireGroup& wire = layout_.groups[g];
    problems.push_back(
        {.a = At(operands.activations(), wire.a),
         .a_scales = nvfp4 ? At(operands.activation_scales(), wire.a_scales) : nullptr,
         .b = codes_.data() + code_offsets_[g],
         .b_scales = scales_.data() + scale_offsets_[g],
         // The reference only reads C; GroupProblem is shared with kernels, which write it.
         .c = const_cast<uint8_t*>(At(output, wire.c)),
         .row_scale = case_.row_scale ? operands.row_scale().data() + wire.row : nullptr,
         .c_stride = wire.c_stride,
         .m = group.m,
         .n = group.n,
         .k = group.k,
         .alpha = alpha_[g]});
  }
  return problems;
}

int64_t FindNonzeroGap(const GroupedCase& c, const WireLayout& layout, const std::string& output) {
  // Every line of live elements that lies without a gap, in order of address.
  std::vector<std::pair<int64_t, int64_t>> live;
  const int64_t element = OutputElementBytes(c.types.c_type);
  for (size_t g = 0; g < c.groups.size(); ++g) {
    const CaseGroup& group = c.groups[g];
    const WireGroup& wire = layout.groups[g];
    const bool row_major = c.types.c_layout == OutputLayout::kRowMajor;
    const int64_t lines = row_major ? group.m : group.n;
    const int64_t length = (row_major ? group.n : group.m) * element;
    for (int64_t line = 0; line < lines && length > 0; ++line) {
      const int64_t begin = wire.c + line * wire.c_stride * element;
      live.emplace_back(begin, begin + length);
    }
  }
  std::sort(live.begin(), live.end());
  live.emplace_back(static_cast<int64_t>(output.size()), 0);
  int64_t from = 0;
  for (const auto& [begin, end] : live) {
    for (; from < begin; ++from) {
      if (output[static_cast<size_t>(from)] != 0) return from;
    }
    from = end;
  }
  return -1;
}

}  // namespace tetrad::cli
