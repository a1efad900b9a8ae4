// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/projection.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/checkpoint/printable.h"
#include "engine/support/error_detail.h"
#include "engine/support/illegal_scale.h"
#include "engine/support/status_macros.h"
#include "kernels/nvfp4.h"

namespace tetrad {
namespace {

constexpr uint64_t kKMultiple = 32;
constexpr uint64_t kMaxDimension = std::numeric_limits<int32_t>::max();
constexpr uint64_t kMaxFusedGroups = 1 << 20;  // bounds what is kept for each group

std::string Text(const CheckpointTensor& tensor) {
  const std::string_view dtype = DtypeName(tensor.info.dtype);
  return absl::StrCat("tensor `", Printable(tensor.info.name), "` (",
                      absl::string_view(dtype.data(), dtype.size()), " ",
                      ShapeText(tensor.info.shape), ")");
}

template <typename... Args>
absl::Status Refuse(const CheckpointTensor& tensor, const Args&... reason) {
  return ReasonError(Reason::kIllegalCheckpoint, absl::StrCat(Text(tensor), ": ", reason...));
}

// What the tensors of all experts must agree on.
struct Shape {
  uint64_t groups_per_tensor = 1;
  bool fused = false;
  bool transposed = false;
  uint64_t n = 0;
  uint64_t k = 0;

  // The shape of a fused or plain tensor whose rows along K take `row` elements.
  std::vector<uint64_t> Of(uint64_t row) const {
    std::vector<uint64_t> dims = {n, row};
    if (transposed) std::swap(dims[0], dims[1]);
    if (fused) dims.insert(dims.begin(), groups_per_tensor);
    return dims;
  }
};

// Reads the shape off the first expert's codes. Only its scales tell [G, K/2, N] from [G, N, K/2].
absl::StatusOr<Shape> ShapeOf(const CheckpointTensor& codes, const CheckpointTensor& scales,
                              bool may_be_fused) {
  const std::span<const uint64_t> dims = codes.info.shape;
  if (codes.info.dtype != Dtype::kU8) {
    return Refuse(codes, "packed codes must be U8; not an NVFP4 weight?");
  }
  Shape shape;
  shape.fused = may_be_fused && dims.size() == 3;
  if (dims.size() != 2 && !shape.fused) {
    return Refuse(codes, may_be_fused ? "codes must be [N, K/2], [G, N, K/2] or [G, K/2, N]"
                                      : "codes must be [N, K/2] where the pattern has {expert}");
  }
  if (shape.fused) shape.groups_per_tensor = dims[0];
  if (*std::ranges::min_element(dims) == 0) return Refuse(codes, "no dimension may be 0");
  if (*std::ranges::max_element(dims) > kMaxDimension / 2) {
    return Refuse(codes, "a dimension exceeds ", kMaxDimension / 2);
  }
  if (shape.groups_per_tensor > kMaxFusedGroups) {
    return Refuse(codes, "more than ", kMaxFusedGroups, " groups");
  }
  shape.n = dims[dims.size() - 2];
  shape.k = 2 * dims.back();
  Shape turned = shape;
  turned.transposed = true;
  turned.n = dims.back();
  turned.k = 2 * dims[dims.size() - 2];
  if (shape.fused && std::ranges::equal(scales.info.shape, turned.Of(turned.k / kScaleBlock))) {
    shape = turned;
  }
  if (shape.k % kKMultiple != 0) {
    return Refuse(codes, "K=", shape.k, " must be a multiple of ", kKMultiple);
  }
  return shape;
}

// Whether `tensor` is what belongs to the codes `first`.
absl::Status CheckTensor(const CheckpointTensor& tensor, Dtype dtype,
                         const std::vector<uint64_t>& dims, const CheckpointTensor& first) {
  if (tensor.info.dtype == dtype && std::ranges::equal(tensor.info.shape, dims)) {
    return absl::OkStatus();
  }
  const std::string_view name = DtypeName(dtype);
  return Refuse(tensor, "must be ", absl::string_view(name.data(), name.size()), " ",
                ShapeText(dims), " to go with ", Text(first));
}

// Reads one FP32 factor for each group of the tensor, or one that all of them share, and appends
// it to `out`. A divisor is turned into a factor: fl32(1/x), as the arithmetic contract says.
absl::Status AppendFactors(const CheckpointTensor& tensor, uint64_t groups, bool is_divisor,
                           std::vector<float>& out) {
  constexpr uint64_t kBytes = sizeof(float);
  if (tensor.info.dtype != Dtype::kF32) return Refuse(tensor, "must be F32");
  const uint64_t values = tensor.info.bytes() / kBytes;
  if (values != 1 && values != groups) {
    return Refuse(tensor, "must hold one value", groups == 1 ? "" : absl::StrCat(" or ", groups));
  }
  std::vector<uint8_t> bytes(values * kBytes);
  TETRAD_RETURN_IF_ERROR(tensor.file->Read(tensor.info, 0, bytes));
  for (uint64_t group = 0; group < groups; ++group) {
    const uint64_t at = values == 1 ? 0 : group;
    uint32_t bits = 0;
    for (uint64_t i = kBytes; i-- > 0;) bits = bits << 8 | bytes[at * kBytes + i];
    const float stored = std::bit_cast<float>(bits);
    const float factor = is_divisor ? 1.0f / stored : stored;
    const auto usable = [](float value) { return std::isnormal(value) && value > 0; };
    if (!usable(stored) || !usable(factor)) {
      return Refuse(tensor, "value ", at, " is ", stored,
                    is_divisor ? "; it and its reciprocal must be" : "; it must be",
                    " positive, finite and normal");
    }
    out.push_back(factor);
  }
  return absl::OkStatus();
}

// Appends the input scales of all experts, or notes why there are none.
absl::Status ReadInputScales(const ProjectionTensors& tensors, uint64_t groups_per_tensor,
                             ProjectionInfo& info) {
  const auto has = [](const ExpertTensors& e) { return e.has(ProjectionRole::kInputScale); };
  const auto present = static_cast<size_t>(std::ranges::count_if(tensors.experts, has));
  if (present != 0 && present != tensors.experts.size()) {
    const auto without = std::ranges::find_if_not(tensors.experts, has);
    info.notes.push_back(absl::StrCat("input scales not used: only ", present, " of ",
                                      tensors.experts.size(), " experts have one, expert ",
                                      without - tensors.experts.begin(), " has none"));
  }
  if (present != tensors.experts.size()) return absl::OkStatus();
  for (const ExpertTensors& expert : tensors.experts) {
    TETRAD_RETURN_IF_ERROR(AppendFactors(expert.at(ProjectionRole::kInputScale), groups_per_tensor,
                                         tensors.dialect == Dialect::kCompressedTensors,
                                         info.input_scale));
  }
  return absl::OkStatus();
}

// A factor maps the largest code times the largest scale, 6 * 448, to the largest weight; weights
// beyond that are unheard of, a divisor stored where a factor belongs is not.
void NoteSuspectAlphas(ProjectionInfo& info) {
  const auto suspect = std::ranges::find_if(info.alpha, [](float alpha) { return alpha > 1; });
  if (suspect == info.alpha.end()) return;
  info.notes.push_back(absl::StrCat("group ", suspect - info.alpha.begin(), ": global factor ",
                                    *suspect, " is above 1; was a divisor stored as a factor?"));
}

}  // namespace

absl::StatusOr<Projection> Projection::Open(std::shared_ptr<const Checkpoint> checkpoint,
                                            std::string_view pattern,
                                            const ProjectionOptions& options) {
  TETRAD_ASSIGN_OR_RETURN(const ProjectionTensors tensors,
                          FindProjection(*checkpoint, pattern, options.dialect));
  const CheckpointTensor& first = tensors.experts.front().at(ProjectionRole::kCodes);
  TETRAD_ASSIGN_OR_RETURN(const Shape shape,
                          ShapeOf(first, tensors.experts.front().at(ProjectionRole::kScales),
                                  !tensors.has_placeholder));

  Projection projection;
  ProjectionInfo& info = projection.info_;
  info.dialect = tensors.dialect;
  info.notes = checkpoint->notes();
  info.notes.insert(info.notes.end(), tensors.notes.begin(), tensors.notes.end());
  info.n = static_cast<int64_t>(shape.n);
  info.k = static_cast<int64_t>(shape.k);
  projection.transposed_ = shape.transposed;
  projection.code_bytes_ = static_cast<uint64_t>(CodeBytes(info.n, info.k));
  projection.scale_bytes_ =
      static_cast<uint64_t>(ScalePlaneBytes(ScaleLayout::kLinear, info.n, info.k));
  for (const ExpertTensors& expert : tensors.experts) {
    const CheckpointTensor& codes = expert.at(ProjectionRole::kCodes);
    const CheckpointTensor& scales = expert.at(ProjectionRole::kScales);
    TETRAD_RETURN_IF_ERROR(CheckTensor(codes, Dtype::kU8, shape.Of(shape.k / 2), first));
    TETRAD_RETURN_IF_ERROR(
        CheckTensor(scales, Dtype::kF8E4m3, shape.Of(shape.k / kScaleBlock), first));
    TETRAD_RETURN_IF_ERROR(AppendFactors(expert.at(ProjectionRole::kGlobalScale),
                                         shape.groups_per_tensor,
                                         info.dialect == Dialect::kCompressedTensors, info.alpha));
    for (uint64_t group = 0; group < shape.groups_per_tensor; ++group) {
      projection.codes_.push_back({codes, group * projection.code_bytes_});
      projection.scales_.push_back({scales, group * projection.scale_bytes_});
    }
  }
  if (!options.ignore_input_scales) {
    TETRAD_RETURN_IF_ERROR(ReadInputScales(tensors, shape.groups_per_tensor, info));
  }
  NoteSuspectAlphas(info);
  info.groups = static_cast<int64_t>(projection.codes_.size());
  info.total_bytes = projection.codes_.size() * (projection.code_bytes_ + projection.scale_bytes_);
  projection.checkpoint_ = std::move(checkpoint);
  return projection;
}

absl::Status Projection::ReadPlane(int64_t group, const std::vector<Plane>& planes, uint64_t bytes,
                                   uint64_t offset, std::span<uint8_t> out) const {
  if (group < 0 || group >= info_.groups) {
    return ReasonError(Reason::kFieldOutOfRange,
                       absl::StrCat("group ", group, " of ", info_.groups, " does not exist"));
  }
  if (offset > bytes || out.size() > bytes - offset) {
    return ReasonError(Reason::kFieldOutOfRange,
                       absl::StrCat("group ", group, ": has ", bytes, " bytes; wanted ", out.size(),
                                    " from byte ", offset));
  }
  const Plane& plane = planes[static_cast<size_t>(group)];
  if (transposed_) return ReadTurned(plane, bytes / static_cast<uint64_t>(info_.n), offset, out);
  return plane.tensor.file->Read(plane.tensor.info, plane.offset + offset, out);
}

// Stored [row_bytes, n]. What is wanted are some rows [n, row_bytes], the first and the last
// perhaps in part: a strip of stored rows at a time, as far as they hold these, turned on its way.
absl::Status Projection::ReadTurned(const Plane& plane, uint64_t row_bytes, uint64_t offset,
                                    std::span<uint8_t> out) const {
  if (out.empty()) return absl::OkStatus();
  constexpr uint64_t kStripBytes = 1 << 18;
  const uint64_t end = offset + out.size();
  const uint64_t first = offset / row_bytes;
  const uint64_t width = (end - 1) / row_bytes + 1 - first;
  const uint64_t strip_rows = std::clamp<uint64_t>(kStripBytes / width, 1, row_bytes);
  std::vector<uint8_t> strip(strip_rows * width);
  for (uint64_t begin = 0; begin < row_bytes; begin += strip_rows) {
    const uint64_t rows = std::min(strip_rows, row_bytes - begin);
    TETRAD_RETURN_IF_ERROR(plane.tensor.file->ReadRows(
        plane.tensor.info, plane.offset + begin * static_cast<uint64_t>(info_.n) + first,
        static_cast<uint64_t>(info_.n), width, std::span(strip).first(rows * width)));
    for (uint64_t column = 0; column < width; ++column) {
      const uint64_t strip_at = (first + column) * row_bytes + begin;  // in the group's plane
      const uint64_t to = std::min(strip_at + rows, end);
      for (uint64_t at = std::max(strip_at, offset); at < to; ++at) {
        out[at - offset] = strip[(at - strip_at) * width + column];
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Projection::ReadCodes(int64_t group, uint64_t offset, std::span<uint8_t> out) const {
  return ReadPlane(group, codes_, code_bytes_, offset, out);
}

absl::Status Projection::ReadScales(int64_t group, uint64_t offset, std::span<uint8_t> out) const {
  TETRAD_RETURN_IF_ERROR(ReadPlane(group, scales_, scale_bytes_, offset, out));
  const size_t bad = FindIllegalScale(out);
  if (bad == out.size()) return absl::OkStatus();
  const int64_t at = static_cast<int64_t>(offset + bad);
  const int64_t blocks = info_.k / kScaleBlock;
  return Refuse(scales_[static_cast<size_t>(group)].tensor, "group ", group, " row ", at / blocks,
                " block ", at % blocks, ": scale byte ", absl::Hex(out[bad], absl::kZeroPad2),
                (out[bad] & 0x7F) == kUe4m3Nan ? " is NaN" : " is negative");
}

absl::StatusOr<Projection> OpenProjection(const Root& root, std::string_view directory,
                                          std::string_view pattern,
                                          const ProjectionOptions& options) {
  TETRAD_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(root, directory));
  return Projection::Open(std::make_shared<const Checkpoint>(std::move(checkpoint)), pattern,
                          options);
}

}  // namespace tetrad
