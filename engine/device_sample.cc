// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/device_sample.h"

#include <algorithm>
#include <utility>

#include "engine/packing_batches.h"
#include "engine/support/status_macros.h"
#include "kernels/compare.h"

namespace tetrad {
namespace {

// No result of ours has these bytes throughout (a NaN, and not the canonical one).
constexpr std::byte kPattern{0xFD};
constexpr int64_t kMarginBytes = 512;

Signature SignatureOf(const std::vector<GroupShape>& shapes, const DeviceSampleOptions& options,
                      const Operands& operands) {
  Signature s;
  s.types = options.sample.types;
  s.form = options.sample.form;
  s.m_source = options.m_source;
  s.row_scale = options.sample.row_scales;
  s.groups = shapes;
  if (options.sample.c_padding > 0) s.c_stride = operands.groups()[0].c_stride;
  if (!s.device_m()) return s;
  for (GroupShape& shape : s.groups) {
    s.capacity_rows = s.m_source == MSource::kCounts ? shape.m : s.capacity_rows + shape.m;
    shape.m = 0;
  }
  return s;
}

}  // namespace

std::span<const DeviceSample::NamedOperand, DeviceSample::kOperands> DeviceSample::AllOperands() {
  static constexpr NamedOperand kAll[kOperands] = {{"activations", &OperandBlocks::a},
                                                   {"activation_scales", &OperandBlocks::a_scales},
                                                   {"weights codes", &OperandBlocks::b},
                                                   {"weights scales", &OperandBlocks::b_scales},
                                                   {"output", &OperandBlocks::c},
                                                   {"alpha", &OperandBlocks::alpha},
                                                   {"row_scale", &OperandBlocks::row_scale},
                                                   {"m_values", &OperandBlocks::m_values}};
  return kAll;
}

DeviceSample::DeviceSample(Device& device, std::vector<GroupShape> shapes,
                           const DeviceSampleOptions& options)
    : device_(device), options_(options), operands_(shapes, options.sample) {
  Signature wanted = SignatureOf(shapes, options, operands_);
  const bool packed = device.limits().packs_weights;
  if (packed) wanted.types.b_scale_layout = ScaleLayout::kPacked;
  const auto signature = Canonicalize(std::move(wanted));
  TETRAD_CHECK(signature.ok());
  plan_ = std::make_shared<const Plan>(*BuildPlan(*signature, device.limits()));
  const ProblemTypes& types = signature->types;
  const OperandLayout& layout = plan_->layout;
  blocks_.a = Place(layout.a_bytes);
  blocks_.a_scales = Place(layout.a_scale_bytes);
  blocks_.b = Place(WeightCodeBytes(*signature));
  blocks_.b_scales = Place(WeightScaleBytes(*signature));
  if (packed) {
    PlacePackedWeights();
  } else {
    PutWeights(blocks_.b, blocks_.b_scales);
  }
  blocks_.alpha = Place(static_cast<int64_t>(shapes.size()) * 4);
  blocks_.row_scale = Place(signature->row_scale ? layout.rows * 4 : 0);
  blocks_.m_values = Place(layout.m_values * 4);
  blocks_.c = Place(layout.c_bytes + 2 * kMarginBytes);
  const int64_t used_bytes = blocks_.c.bytes;
  blocks_.c.offset = kMarginBytes;
  blocks_.c.bytes = layout.c_bytes;
  output_bytes_ = used_bytes;
  ClearOutput();

  int64_t row = 0, a = 0, a_scales = 0;
  for (size_t g = 0; g < shapes.size(); ++g) {
    const GroupProblem& group = operands_.groups()[g];
    const int32_t m = shapes[g].m, k = shapes[g].k;
    if (!signature->device_m()) a = layout.groups[g].a, a_scales = layout.groups[g].a_scales;
    const int64_t a_bytes = ActivationBytes(types.a_type, m, k);
    Put(blocks_.a, a, group.a, a_bytes);
    a += a_bytes;
    if (types.a_type == ActivationType::kNvfp4) {
      const int64_t bytes = ScalePlaneBytes(types.a_scale_layout, m, k);
      Put(blocks_.a_scales, a_scales, group.a_scales, bytes);
      a_scales += bytes;
    }
    Put(blocks_.alpha, static_cast<int64_t>(g) * 4, &group.alpha, 4);
    if (signature->row_scale) Put(blocks_.row_scale, row * 4, group.row_scale, m * 4);
    row += m;
  }
}

void DeviceSample::PutWeights(const BlockRef& codes, const BlockRef& scales) {
  int64_t b = 0, b_scales = 0;
  for (const GroupProblem& group : operands_.groups()) {
    const int64_t code_bytes = CodeBytes(group.n, group.k);
    const int64_t scale_bytes =
        ScalePlaneBytes(options_.sample.types.b_scale_layout, group.n, group.k);
    Put(codes, b, group.b, code_bytes);
    Put(scales, b_scales, group.b_scales, scale_bytes);
    b += code_bytes;
    b_scales += scale_bytes;
  }
}

void DeviceSample::PlacePackedWeights() {
  std::vector<GroupDims> dims;
  for (const GroupProblem& group : operands_.groups()) dims.push_back({group.n, group.k});
  const PackingBatches batches(dims, options_.sample.types.b_scale_layout);
  const AllocationId memory = blocks_.b.allocation;
  // Packed they take what both take, or more.
  const int64_t codes = batches.code_bytes();
  PutWeights({memory, 0, codes}, {memory, codes, batches.scale_bytes()});
  const BlockRef scratch = Place(batches.least_scratch_bytes());
  TETRAD_CHECK(device_
                   .PackWeights({.groups = dims,
                                 .scale_layout = batches.scale_layout(),
                                 .memory = blocks_.b,
                                 .scales = codes,
                                 .scratch = scratch})
                   .ok());
  TETRAD_CHECK(device_.Free(scratch.allocation).ok());
  std::erase_if(allocations_, [&](const Allocation& a) { return a.id == scratch.allocation; });
}

BlockRef DeviceSample::Place(int64_t bytes) {
  if (bytes == 0) return {};
  const auto allocation = device_.Allocate(bytes);
  TETRAD_CHECK(allocation.ok());
  allocations_.push_back(*allocation);
  return {allocation->id, 0, bytes};
}

const Allocation& DeviceSample::allocation(AllocationId id) const {
  return *std::ranges::find(allocations_, id, &Allocation::id);
}

void DeviceSample::Put(const BlockRef& block, int64_t offset, const void* data, int64_t bytes) {
  if (bytes == 0) return;
  const std::span<const std::byte> from(static_cast<const std::byte*>(data),
                                        static_cast<size_t>(bytes));
  TETRAD_CHECK(device_.Write(block.allocation, block.offset + offset, from).ok());
}

std::vector<DeviceSample::NamedOperand> DeviceSample::operands() const {
  std::vector<NamedOperand> present;
  for (const NamedOperand& operand : AllOperands()) {
    if ((blocks_.*operand.block).bytes > 0) present.push_back(operand);
  }
  return present;
}

void DeviceSample::SetMValues(std::span<const int32_t> values) {
  Put(blocks_.m_values, 0, values.data(), static_cast<int64_t>(values.size_bytes()));
}

void DeviceSample::ClearOutput() {
  const std::vector<std::byte> pattern(static_cast<size_t>(output_bytes_), kPattern);
  TETRAD_CHECK(device_.Write(blocks_.c.allocation, 0, pattern).ok());
}

std::vector<std::byte> DeviceSample::ReadOutput() const {
  std::vector<std::byte> image(static_cast<size_t>(output_bytes_));
  TETRAD_CHECK(device_.Read(blocks_.c.allocation, 0, image).ok());
  return image;
}

int64_t DeviceSample::OutputOffset(size_t group, const GroupProblem& problem) const {
  if (options_.sample.form == GroupForm::kSeparate) return plan_->layout.groups[group].c;
  return static_cast<const std::byte*>(problem.c) - static_cast<std::byte*>(operands_.stack().c);
}

::testing::AssertionResult DeviceSample::Correct(std::span<const GroupProblem> groups) {
  operands_.ClearOutput();
  std::vector<std::byte> image = ReadOutput();
  const int64_t element = OutputElementBytes(options_.sample.types.c_type);
  const bool row_major = options_.sample.types.c_layout == OutputLayout::kRowMajor;
  for (size_t g = 0; g < groups.size(); ++g) {
    const GroupProblem& group = groups[g];
    if (group.m == 0) continue;
    const auto begin = image.begin() + blocks_.c.offset + OutputOffset(g, group);
    const int64_t length = (row_major ? group.n : group.m) * element;
    for (int64_t line = 0; line < (row_major ? group.m : group.n); ++line) {
      const int64_t at = line * group.c_stride * element;
      std::copy_n(begin + at, length, static_cast<std::byte*>(group.c) + at);
      std::fill_n(begin + at, length, kPattern);
    }
  }
  const auto stray = std::find_if(image.begin(), image.end(), [](auto b) { return b != kPattern; });
  if (stray != image.end()) {
    return ::testing::AssertionFailure()
           << "byte " << stray - image.begin() - blocks_.c.offset << " of the output was written";
  }
  const Verdict verdict = Verify(options_.sample.types, groups, {.check = Check::kBits});
  if (!verdict.pass) return ::testing::AssertionFailure() << verdict.ToString();
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult DeviceSample::NothingOutsideTheOutput() const {
  const std::vector<std::byte> image = ReadOutput();
  for (int64_t i = 0; i < output_bytes_; ++i) {
    if (i == blocks_.c.offset) i += blocks_.c.bytes;
    if (image[static_cast<size_t>(i)] != kPattern) {
      return ::testing::AssertionFailure() << "byte " << i - blocks_.c.offset << " was written";
    }
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult DeviceSample::FreeAll() {
  for (const NamedOperand& operand : AllOperands()) {
    const AllocationId id = (blocks_.*operand.block).allocation;
    if (id == AllocationId::kNone) continue;
    const absl::Status status = device_.Free(id);
    if (!status.ok()) return ::testing::AssertionFailure() << operand.name << ": " << status;
  }
  return ::testing::AssertionSuccess();
}

}  // namespace tetrad
