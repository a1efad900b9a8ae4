// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// SampleRequest (tests only): seeded operands as an engine client sends them,
// and the judgement of what comes back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "kernels/compare.h"
#include "kernels/sample.h"

namespace tetrad {

class SampleRequest {
 public:
  SampleRequest(std::vector<GroupShape> shapes, const SampleOptions& options)
      : shapes_(std::move(shapes)), options_(options), operands_(shapes_, options) {
    for (size_t g = 0; g < shapes_.size(); ++g) {
      const GroupProblem& group = operands_.groups()[g];
      const auto [m, n, k] = shapes_[g];
      const ProblemTypes& types = options.types;
      Append(a_, group.a, ActivationBytes(types.a_type, m, k));
      if (types.a_type == ActivationType::kNvfp4) {
        Append(a_scales_, group.a_scales, ScalePlaneBytes(types.a_scale_layout, m, k));
      }
      Append(b_, group.b, CodeBytes(n, k));
      Append(b_scales_, group.b_scales, ScalePlaneBytes(types.b_scale_layout, n, k));
      alpha_.push_back(group.alpha);
      for (int32_t row = 0; options.row_scales && row < m; ++row) {
        row_scale_.push_back(group.row_scale[row]);
      }
    }
  }

  WeightsSpec Spec(const std::string& name) const {
    WeightsSpec spec;
    spec.name = name;
    for (const GroupShape& shape : shapes_) spec.groups.push_back({shape.n, shape.k});
    spec.scale_layout = options_.types.b_scale_layout;
    return spec;
  }
  const std::string& codes() const { return b_; }
  const std::string& scales() const { return b_scales_; }

  // Registers and seals the weights; alphas stay with the request.
  absl::Status Register(WeightsRegistry& weights, const std::string& name) const {
    const auto version = weights.Begin(Spec(name));
    if (!version.ok()) return version.status();
    for (const auto& [operand, data] :
         {std::pair(WeightsOperand::kCodes, &b_), std::pair(WeightsOperand::kScales, &b_scales_)}) {
      auto status = weights.Write(name, *version, operand, 0, std::as_bytes(std::span(*data)));
      if (!status.ok()) return status;
    }
    return weights.Seal(name, *version).status();
  }

  SignatureRequest Signature(const std::string& weights) const {
    SignatureRequest request;
    request.weights = weights;
    request.types = options_.types;
    request.form = options_.form;
    for (const GroupShape& shape : shapes_) request.m.push_back(shape.m);
    request.row_scale = options_.row_scales;
    if (options_.c_padding > 0 && !operands_.groups().empty()) {
      request.c_stride = operands_.groups()[0].c_stride;
    }
    return request;
  }

  InlineOperands Inline() const {
    return {{a_.data(), a_.size()}, {a_scales_.data(), a_scales_.size()}, alpha_, row_scale_, {}};
  }

  // `output` as CopyOutput() gives it; groups concatenated.
  Verdict Judge(std::span<const std::byte> output) {
    operands_.ClearOutput();
    const int64_t element = OutputElementBytes(options_.types.c_type);
    const bool row_major = options_.types.c_layout == OutputLayout::kRowMajor;
    int64_t at = 0;
    if (options_.form == GroupForm::kStacked) {
      std::copy_n(output.data(), output.size(), static_cast<std::byte*>(operands_.stack().c));
    } else {
      for (const GroupProblem& group : operands_.groups()) {
        const int64_t bytes =
            group.m == 0 ? 0 : (row_major ? group.m : group.n) * group.c_stride * element;
        std::copy_n(output.data() + at, bytes, static_cast<std::byte*>(group.c));
        at += bytes;
      }
    }
    VerifyOptions verify;
    verify.check = IsExact(options_.kind) ? Check::kBits : Check::kBound;
    return Verify(options_.types, operands_.groups(), verify);
  }

  const Operands& operands() const { return operands_; }

 private:
  static void Append(std::string& to, const uint8_t* from, int64_t bytes) {
    to.append(reinterpret_cast<const char*>(from), static_cast<size_t>(bytes));
  }
  std::vector<GroupShape> shapes_;
  SampleOptions options_;
  Operands operands_;
  std::string a_, a_scales_, b_, b_scales_;
  std::vector<float> alpha_, row_scale_;
};

}  // namespace tetrad
