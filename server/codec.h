// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Codec: messages of tetrad.v1 to types of the engine and back.
//
// Everything from the wire is checked here for being expressible at all: every
// enumeration value is known, names follow the grammar, counts fit. Whether a
// signature is legal is the engine's to say. Pure functions; errors are
// INVALID_ARGUMENT and name the field and its value.
#pragma once

#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tetrad/v1/gemm.pb.h"
#include "tetrad/v1/memory.pb.h"
#include "tetrad/v1/weights.pb.h"

#include "engine/checkpoint/dialect.h"
#include "engine/engine.h"

namespace tetrad {

// `name` or `name@version`, or a plan handle: [A-Za-z0-9._/@-], not empty.
absl::Status ValidateReference(std::string_view field, std::string_view value);

// A client's name for one of its uploads, writes or submitted requests:
// [A-Za-z0-9._:/+=-]{1,128}, as request ids.
absl::Status ValidateKey(std::string_view field, std::string_view value);

absl::StatusOr<SignatureRequest> FromProto(const v1::Signature& signature);
// Refers to the message's memory.
InlineOperands FromProto(const v1::InlineOperands& operands);
absl::StatusOr<Priority> FromProto(v1::Priority priority);

// An Execute message as the engine takes it. `request` refers to the message
// and to what lies beside it here.
struct DecodedExecute {
  DecodedExecute() = default;
  DecodedExecute(const DecodedExecute&) = delete;
  DecodedExecute& operator=(const DecodedExecute&) = delete;

  ExecuteRequest request;
  std::optional<SignatureRequest> signature;
  std::optional<BlockOperands> blocks;
};
// Leaves client and deadline alone. `out` is new.
absl::Status Decode(const v1::ExecuteRequest& message, DecodedExecute& out);

absl::StatusOr<WeightsSpec> FromProto(const v1::UploadHeader& header, int64_t max_groups);
absl::StatusOr<WeightsOperand> FromProto(v1::WeightsOperand operand);
absl::StatusOr<Dialect> FromProto(v1::CheckpointDialect dialect);

void ToProto(const PreparedPlan& prepared, v1::PrepareResponse& out);
void ToProto(const Timings& timings, double share, v1::Timings& out);
void ToProto(const WeightsInfo& info, v1::WeightsInfo& out);
void ToProto(const BlockInfo& info, v1::BlockInfo& out);

}  // namespace tetrad
