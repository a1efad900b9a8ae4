// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/sample.h"

#include <cstring>

#include "kernels/sample_fill.h"

namespace tetrad {
namespace {

// No FP16, BF16 or FP32 result of ours has these bytes throughout: as a value
// it is a NaN, and not the canonical one.
constexpr uint8_t kPattern = 0xFD;
constexpr int64_t kMarginBytes = 64;

}  // namespace

struct Operands::Planes {
  uint8_t* a = nullptr;
  uint8_t* a_scales = nullptr;
  uint8_t* b = nullptr;
  uint8_t* b_scales = nullptr;
  float* row_scale = nullptr;
  std::byte* c = nullptr;
  int64_t c_stride = 0;
};

Operands::Operands(std::span<const GroupShape> shapes, const SampleOptions& options)
    : options_(options) {
  const ProblemTypes& types = options_.types;
  const std::vector<Planes> planes =
      options_.form == GroupForm::kSeparate ? AllocateSeparate(shapes) : AllocateStacked(shapes);
  // Junk first: what is not overwritten below is padding.
  Random random(options_.seed);
  for (const AlignedBuffer& buffer : buffers_) FillJunk(random, buffer.bytes());
  for (size_t g = 0; g < shapes.size(); ++g) {
    const GroupShape& shape = shapes[g];
    const Planes& to = planes[g];
    GroupProblem group{.a = to.a,
                       .a_scales = to.a_scales,
                       .b = to.b,
                       .b_scales = to.b_scales,
                       .c = to.c,
                       .row_scale = to.row_scale,
                       .c_stride = to.c_stride,
                       .m = shape.m,
                       .n = shape.n,
                       .k = shape.k};
    const Destination destination{to.a, to.a_scales, to.b, to.b_scales, to.row_scale};
    FillGroup(types, options_.kind, random, destination, &group);
    groups_.push_back(group);
    alphas_.push_back(group.alpha);
  }
  stack_.alpha = alphas_.data();
  ClearOutput();
}

uint8_t* Operands::Allocate(int64_t bytes) {
  return buffers_.emplace_back(static_cast<size_t>(bytes)).as<uint8_t>();
}

std::byte* Operands::AllocateOutput(int64_t m, int64_t n, int64_t* stride) {
  const bool row_major = options_.types.c_layout == OutputLayout::kRowMajor;
  *stride = (row_major ? n : m) + options_.c_padding;
  const int64_t elements = (row_major ? m : n) * *stride;
  const int64_t bytes = elements * OutputElementBytes(options_.types.c_type) + 2 * kMarginBytes;
  return outputs_.emplace_back(static_cast<size_t>(bytes)).data() + kMarginBytes;
}

std::vector<Operands::Planes> Operands::AllocateSeparate(std::span<const GroupShape> shapes) {
  const ProblemTypes& types = options_.types;
  std::vector<Planes> planes;
  for (const GroupShape& shape : shapes) {
    Planes group;
    group.a = Allocate(ActivationBytes(types.a_type, shape.m, shape.k));
    if (types.a_type == ActivationType::kNvfp4) {
      group.a_scales = Allocate(ScalePlaneBytes(types.a_scale_layout, shape.m, shape.k));
    }
    group.b = Allocate(CodeBytes(shape.n, shape.k));
    group.b_scales = Allocate(ScalePlaneBytes(types.b_scale_layout, shape.n, shape.k));
    if (options_.row_scales) {
      group.row_scale = reinterpret_cast<float*>(Allocate(shape.m * 4));
    }
    group.c = AllocateOutput(shape.m, shape.n, &group.c_stride);
    planes.push_back(group);
  }
  return planes;
}

std::vector<Operands::Planes> Operands::AllocateStacked(std::span<const GroupShape> shapes) {
  const ProblemTypes& types = options_.types;
  const int64_t n = shapes[0].n;
  const int64_t k = shapes[0].k;
  const bool blocked = types.a_scale_layout == ScaleLayout::kBlocked;
  int64_t rows = 0;
  int64_t scale_rows = 0;
  for (const GroupShape& shape : shapes) {
    rows += shape.m;
    scale_rows += blocked ? RoundUp(shape.m, kScaleTileRows) : shape.m;
  }
  const auto count = static_cast<int64_t>(shapes.size());
  const int64_t b_scale_bytes = ScalePlaneBytes(types.b_scale_layout, n, k);
  Planes next;
  next.a = Allocate(ActivationBytes(types.a_type, rows, k));
  if (types.a_type == ActivationType::kNvfp4) {
    next.a_scales = Allocate(ScalePlaneBytes(types.a_scale_layout, scale_rows, k));
  }
  next.b = Allocate(count * CodeBytes(n, k));
  next.b_scales = Allocate(count * b_scale_bytes);
  if (options_.row_scales) next.row_scale = reinterpret_cast<float*>(Allocate(rows * 4));
  next.c = AllocateOutput(rows, n, &next.c_stride);
  stack_ = {.m_source = MSource::kHost,
            .groups = static_cast<int32_t>(count),
            .n = shapes[0].n,
            .k = shapes[0].k,
            .a = next.a,
            .a_scales = next.a_scales,
            .b = next.b,
            .b_scales = next.b_scales,
            .c = next.c,
            .row_scale = next.row_scale,
            .c_stride = next.c_stride};
  const int64_t c_row = types.c_layout == OutputLayout::kRowMajor ? next.c_stride : 1;
  std::vector<Planes> planes;
  for (const GroupShape& shape : shapes) {
    planes.push_back(next);
    next.a += ActivationBytes(types.a_type, shape.m, k);
    if (next.a_scales != nullptr) {
      next.a_scales += ScalePlaneBytes(types.a_scale_layout, shape.m, k);
    }
    next.b += CodeBytes(n, k);
    next.b_scales += b_scale_bytes;
    if (next.row_scale != nullptr) next.row_scale += shape.m;
    next.c += shape.m * c_row * OutputElementBytes(types.c_type);
  }
  return planes;
}

void Operands::ClearOutput() {
  for (const AlignedBuffer& output : outputs_) {
    std::memset(output.data(), kPattern, output.size());
  }
}

bool Operands::OnlyOutputWritten(std::span<const GroupProblem> groups) const {
  const int64_t bytes = OutputElementBytes(options_.types.c_type);
  const bool row_major = options_.types.c_layout == OutputLayout::kRowMajor;
  for (const AlignedBuffer& output : outputs_) {
    std::vector<bool> live(output.size());
    for (const GroupProblem& group : groups) {
      const auto* c = static_cast<const std::byte*>(group.c);
      if (c < output.data() || c >= output.data() + output.size()) continue;
      const int64_t lines = row_major ? group.m : group.n;
      const int64_t length = (row_major ? group.n : group.m) * bytes;
      for (int64_t line = 0; line < lines; ++line) {
        const auto begin = live.begin() + (c - output.data()) + line * group.c_stride * bytes;
        std::fill(begin, begin + length, true);
      }
    }
    for (size_t i = 0; i < live.size(); ++i) {
      if (!live[i] && output.bytes()[i] != std::byte{kPattern}) return false;
    }
  }
  return true;
}

}  // namespace tetrad
