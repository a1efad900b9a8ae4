// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/block_operands.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

bool Overlap(const BlockRef& a, const BlockRef& b) {
  return a.allocation == b.allocation && a.bytes > 0 && b.bytes > 0 &&
         a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

// As in the schema, where what may also be inline has a name that says which.
std::string Field(std::string_view operand) {
  const bool may_be_inline = operand == "row_scale" || operand == "m_values";
  return absl::StrCat("block_operands.", std::string(operand), may_be_inline ? "_block" : "");
}

}  // namespace

absl::Status ResolveBlocks(const Plan& plan, std::string_view client, const BlockOperands& operands,
                           ClientBlocks& blocks, BlockHolds& holds, OperandBlocks& resolved) {
  const OperandLayout& layout = plan.layout;
  const ProblemTypes& types = plan.signature.types;
  const bool row_scale = plan.signature.row_scale;
  struct Operand {
    const char* name;
    const BlockRange& range;
    bool exists;
    int64_t want;
    bool may_be_inline;
    BlockRef& to;
  };
  const Operand all[] = {
      {"activations", operands.activations, true, layout.a_bytes, false, resolved.a},
      {"activation_scales", operands.activation_scales, types.a_type == ActivationType::kNvfp4,
       layout.a_scale_bytes, false, resolved.a_scales},
      {"output", operands.output, true, layout.c_bytes, false, resolved.c},
      {"row_scale", operands.row_scale, row_scale, layout.rows * 4, true, resolved.row_scale},
      {"m_values", operands.m_values, plan.signature.device_m(), layout.m_values * 4, true,
       resolved.m_values},
  };
  static_assert(std::size(all) == std::tuple_size_v<BlockHolds>);
  for (size_t i = 0; i < std::size(all); ++i) {
    const auto& [name, range, exists, want, may_be_inline, to] = all[i];
    to = BlockRef{};
    if (!exists && !range.block.empty()) {
      return FieldError(
          {Field(name)}, Reason::kFieldConflict,
          absl::StrCat(name, ": a block is named, the signature has no such operand"));
    }
    if (!exists || (range.block.empty() && (want == 0 || may_be_inline))) continue;
    if (range.block.empty()) {
      return FieldError({Field(name), "", absl::StrCat(want, " bytes")}, Reason::kFieldMissing,
                        absl::StrCat(name, ": no block is named, the plan needs ", want, " bytes"));
    }
    const auto fail = [name = name](const absl::Status& status) {
      return InMessage(Field(name), WithPrefix(absl::StrCat(name, ": "), status));
    };
    auto found = blocks.Find(client, range.block);
    if (!found.ok()) return fail(found.status());
    const auto inside = (*found)->Range(range.offset, range.bytes);
    if (!inside.ok()) return fail(inside.status());
    if (range.offset % kOperandAlignment != 0) {
      return FieldError({Field(name) + ".offset", absl::StrCat(range.offset),
                         absl::StrCat("a multiple of ", kOperandAlignment)},
                        Reason::kFieldOutOfRange,
                        absl::StrCat(name, ": offset=", range.offset, " must be a multiple of ",
                                     kOperandAlignment));
    }
    if (range.bytes < want) {
      return FieldError(
          {Field(name) + ".bytes", absl::StrCat(range.bytes), absl::StrCat("at least ", want)},
          Reason::kSizeMismatch,
          absl::StrCat(name, ": bytes=", range.bytes, ", the plan needs ", want));
    }
    to = *inside;
    to.bytes = want;  // what is beyond has no part in it
    holds[i] = *std::move(found);
  }
  for (const Operand& operand : all) {
    if (&operand.to == &resolved.c || !Overlap(operand.to, resolved.c)) continue;
    return FieldError({Field("output"),
                       absl::StrCat(resolved.c.bytes, " bytes at offset ", operands.output.offset),
                       absl::StrCat("no part of ", Field(operand.name))},
                      Reason::kOperandsOverlap,
                      absl::StrCat("output: ", resolved.c.bytes, " bytes at offset ",
                                   operands.output.offset, " overlap the ", operand.name));
  }
  return absl::OkStatus();
}

}  // namespace tetrad
