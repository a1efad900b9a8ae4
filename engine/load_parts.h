// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// LoadParts: a projection cut into parts that threads load one after the other.
//
// A part is a range of one operand: some groups of it, or some of a group. A
// large group is cut so that threads balance; small groups are put together, so
// that a hundred thousand of them do not cost a call of the device each. Parts
// are numbered by their first place, where places are ordered by group, then
// codes before scales, then offset: so whoever takes parts in order has begun
// every part that starts before a place that was reached.
//
// Computed from the number; nothing is stored for each part. Immutable.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>

#include "engine/weights.h"
#include "kernels/nvfp4.h"

namespace tetrad {

// A byte of a group's codes or scales.
struct LoadPlace {
  int64_t group = 0;
  WeightsOperand operand = WeightsOperand::kCodes;
  int64_t offset = 0;
  auto operator<=>(const LoadPlace&) const = default;
};

class LoadParts {
 public:
  struct Part {
    WeightsOperand operand = WeightsOperand::kCodes;
    int64_t offset = 0;  // in the operand of all groups
    int64_t bytes = 0;
  };

  // A group has at least as many bytes of codes as of scales, so no part is empty.
  LoadParts(int64_t groups, int64_t code_bytes, int64_t scale_bytes, int64_t part_bytes)
      : groups_(groups),
        code_bytes_(code_bytes),
        scale_bytes_(scale_bytes),
        part_bytes_(part_bytes),
        batch_(std::clamp<int64_t>(part_bytes / code_bytes, 1, groups)),
        code_parts_(CeilDiv(batch_ * code_bytes, part_bytes)),
        parts_(code_parts_ + CeilDiv(batch_ * scale_bytes, part_bytes)) {}

  int64_t size() const { return CeilDiv(groups_, batch_) * parts_; }

  Part operator[](int64_t index) const {
    const int64_t first_group = index / parts_ * batch_;
    const int64_t groups = std::min(batch_, groups_ - first_group);
    const int64_t within = index % parts_;
    const bool scales = within >= code_parts_;
    const int64_t plane = scales ? scale_bytes_ : code_bytes_;
    const int64_t begin = (scales ? within - code_parts_ : within) * part_bytes_;
    return {scales ? WeightsOperand::kScales : WeightsOperand::kCodes, first_group * plane + begin,
            std::min(part_bytes_, groups * plane - begin)};
  }

  // Of a byte of an operand of all groups.
  LoadPlace PlaceOf(WeightsOperand operand, int64_t offset) const {
    const int64_t plane = plane_bytes(operand);
    return {offset / plane, operand, offset % plane};
  }
  int64_t plane_bytes(WeightsOperand operand) const {
    return operand == WeightsOperand::kScales ? scale_bytes_ : code_bytes_;
  }

 private:
  const int64_t groups_, code_bytes_, scale_bytes_, part_bytes_;
  const int64_t batch_;       // groups whose parts come together
  const int64_t code_parts_;  // of a batch
  const int64_t parts_;       // of a batch, its scales included
};

}  // namespace tetrad
