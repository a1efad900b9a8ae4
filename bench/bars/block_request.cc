// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/bars/block_request.h"

#include <cstring>

#include "absl/strings/str_cat.h"

#include "engine/support/status_macros.h"
#include "kernels/float16.h"

namespace tetrad::bars {
namespace {

constexpr int32_t kN = 128, kK = 128;

// Where the operands lie in the one block of the client.
constexpr int64_t kScalesOffset = 128, kOutputOffset = 256;
constexpr int64_t kCodeBytes = kK / 2, kScaleBytes = kK / 16, kOutputBytes = kN * 2;
constexpr int64_t kBlockBytes = kOutputOffset + BlockRequest::kOutputs * kOutputBytes;
// Every code and scale is 1, so every output is K.
constexpr uint8_t kOneOne = 0x22, kScaleOne = 0x38;

}  // namespace

absl::StatusOr<std::unique_ptr<BlockRequest>> BlockRequest::Prepare(const std::string& endpoint) {
  auto made = std::make_unique<BlockRequest>();
  TETRAD_ASSIGN_OR_RETURN(made->client_, Client::Connect(endpoint));
  TETRAD_RETURN_IF_ERROR(made->Place());
  return made;
}

v1::BlockRange BlockRequest::Range(int64_t offset, int64_t bytes) const {
  v1::BlockRange range;
  range.set_block(block_);
  range.set_offset(offset);
  range.set_bytes(bytes);
  return range;
}

absl::Status BlockRequest::Place() {
  v1::UploadHeader header;
  header.set_name("bars");
  header.set_scale_layout(v1::SCALE_LAYOUT_LINEAR);
  header.set_seal(true);
  header.add_groups()->set_n(kN);
  header.mutable_groups(0)->set_k(kK);
  const std::vector<uint8_t> codes(kN * kK / 2, kOneOne), scales(kN * kK / 16, kScaleOne);
  TETRAD_RETURN_IF_ERROR(client_->Upload(header, codes, scales).status());
  TETRAD_ASSIGN_OR_RETURN(attachment_, client_->Attach());
  TETRAD_ASSIGN_OR_RETURN(const v1::BlockInfo block,
                          client_->Allocate(attachment_->lease(), kBlockBytes));
  block_ = block.block();
  TETRAD_RETURN_IF_ERROR(client_->Write(block_, 0, std::vector<uint8_t>(kCodeBytes, kOneOne)));
  TETRAD_RETURN_IF_ERROR(
      client_->Write(block_, kScalesOffset, std::vector<uint8_t>(kScaleBytes, kScaleOne)));

  v1::PrepareRequest prepare;
  prepare.set_lease(attachment_->lease());
  v1::Signature& signature = *prepare.mutable_signature();
  signature.set_weights("bars");
  signature.set_activation_type(v1::ACTIVATION_TYPE_NVFP4);
  signature.set_activation_scale_layout(v1::SCALE_LAYOUT_LINEAR);
  signature.set_output_type(v1::OUTPUT_TYPE_FP16);
  signature.mutable_exact()->add_m(1);
  TETRAD_ASSIGN_OR_RETURN(const v1::PrepareResponse plan, client_->Prepare(prepare));
  for (int64_t output = 0; output < kOutputs; ++output) {
    v1::ExecuteRequest& message = messages_.emplace_back();
    message.set_plan(plan.plan());
    v1::BlockOperands& operands = *message.mutable_block_operands();
    *operands.mutable_activations() = Range(0, kCodeBytes);
    *operands.mutable_activation_scales() = Range(kScalesOffset, kScaleBytes);
    *operands.mutable_output() = Range(kOutputOffset + output * kOutputBytes, kOutputBytes);
  }
  return absl::OkStatus();
}

absl::Status BlockRequest::CheckOutputs(int outputs) {
  std::vector<uint8_t> bytes(static_cast<size_t>(outputs * kOutputBytes));
  TETRAD_RETURN_IF_ERROR(client_->Read(block_, kOutputOffset, bytes));
  for (size_t at = 0; at < bytes.size(); at += 2) {
    uint16_t bits;
    std::memcpy(&bits, &bytes[at], sizeof(bits));
    if (bits != EncodeFp16(kK)) {
      return absl::DataLossError(absl::StrCat("output ", at / kOutputBytes, " column ",
                                              at % kOutputBytes / 2, " has bits ", bits));
    }
  }
  return absl::OkStatus();
}

}  // namespace tetrad::bars
