// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/bound_operands.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"

namespace tetrad {

BoundOperands::~BoundOperands() {
  for (size_t i = 0; i < pin_count_; ++i) memory_.Unpin(pins_[i].allocation, pins_[i].writable);
}

void BoundOperands::Swap(BoundOperands& other) {
  std::swap(stack_, other.stack_);
  std::swap(pins_, other.pins_);
  std::swap(pin_count_, other.pin_count_);
}

absl::StatusOr<uint64_t> BoundOperands::PinOne(const char* name, const BlockRef& block,
                                               int64_t want, bool writable) {
  if (want == 0) return 0;
  if (block.bytes < want) {
    return ReasonError(Reason::kSizeMismatch, absl::StrCat(name, ": block of ", block.bytes,
                                                           " bytes, the plan needs ", want));
  }
  if (block.offset % kOperandAlignment != 0) {
    return ReasonError(Reason::kFieldOutOfRange,
                       absl::StrCat(name, ": block offset ", block.offset,
                                    " must be a multiple of ", kOperandAlignment));
  }
  auto pinned = memory_.Pin(block, writable);
  if (!pinned.ok()) {
    return WithPrefix(absl::StrCat(name, ": "), pinned.status());
  }
  TETRAD_CHECK(pin_count_ < pins_.size());
  pins_[pin_count_++] = {block.allocation, writable};
  return *pinned;
}

template <typename T>
absl::Status BoundOperands::PinAt(const char* name, const BlockRef& block, int64_t want,
                                  bool writable, T*& address) {
  TETRAD_ASSIGN_OR_RETURN(const uint64_t pinned, PinOne(name, block, want, writable));
  address = reinterpret_cast<T*>(pinned);
  return absl::OkStatus();
}

absl::Status BoundOperands::Pin(const Plan& plan, const OperandBlocks& blocks) {
  const Signature& signature = plan.signature;
  const OperandLayout& layout = plan.layout;
  const int64_t groups = static_cast<int64_t>(signature.groups.size());
  stack_.m_source = signature.m_source;
  stack_.groups = static_cast<int32_t>(groups);
  stack_.n = signature.groups[0].n;
  stack_.k = signature.groups[0].k;
  stack_.capacity_rows = signature.capacity_rows;
  stack_.c_stride = layout.c_stride;
  TETRAD_RETURN_IF_ERROR(PinAt("activations", blocks.a, layout.a_bytes, false, stack_.a));
  TETRAD_RETURN_IF_ERROR(
      PinAt("activation_scales", blocks.a_scales, layout.a_scale_bytes, false, stack_.a_scales));
  TETRAD_RETURN_IF_ERROR(
      PinAt("weights codes", blocks.b, WeightCodeBytes(signature), false, stack_.b));
  TETRAD_RETURN_IF_ERROR(PinAt("weights scales", blocks.b_scales, WeightScaleBytes(signature),
                               false, stack_.b_scales));
  std::byte* c = nullptr;
  TETRAD_RETURN_IF_ERROR(PinAt("output", blocks.c, layout.c_bytes, true, c));
  stack_.c = c;
  TETRAD_RETURN_IF_ERROR(PinAt("alpha", blocks.alpha, groups * 4, false, stack_.alpha));
  const int64_t row_scale_bytes = signature.row_scale ? layout.rows * 4 : 0;
  TETRAD_RETURN_IF_ERROR(
      PinAt("row_scale", blocks.row_scale, row_scale_bytes, false, stack_.row_scale));
  TETRAD_RETURN_IF_ERROR(
      PinAt("m_values", blocks.m_values, layout.m_values * 4, false, stack_.m_values));
  return absl::OkStatus();
}

}  // namespace tetrad
