// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/gemm_client.h"

#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>

#include "grpcpp/client_context.h"

namespace tetrad::e2e {
namespace {

bool Stacked(const Operands& operands) { return operands.stack().groups != 0; }

void Append(std::string& out, const void* data, int64_t bytes) {
  if (bytes > 0) out.append(static_cast<const char*>(data), static_cast<size_t>(bytes));
}

void AddChunks(v1::WeightsOperand operand, const std::string& data, size_t chunk_bytes,
               UploadMessages& out) {
  for (size_t at = 0; at < data.size(); at += chunk_bytes) {
    v1::UploadChunk& chunk = *out.emplace_back().mutable_chunk();
    chunk.set_operand(operand);
    chunk.set_offset(static_cast<int64_t>(at));
    chunk.set_data(data.substr(at, chunk_bytes));
  }
}

v1::ScaleLayout ToProto(ScaleLayout layout) {
  return layout == ScaleLayout::kBlocked ? v1::SCALE_LAYOUT_BLOCKED : v1::SCALE_LAYOUT_LINEAR;
}

}  // namespace

UploadMessages UploadMessagesOf(const Operands& operands, const std::string& name,
                                size_t chunk_bytes) {
  const ScaleLayout layout = operands.types().b_scale_layout;
  UploadMessages messages(1);
  v1::UploadHeader& header = *messages[0].mutable_header();
  header.set_name(name);
  header.set_scale_layout(ToProto(layout));
  header.set_seal(true);
  std::string codes;
  std::string scales;
  for (const GroupProblem& group : operands.groups()) {
    v1::GroupDims& dims = *header.add_groups();
    dims.set_n(group.n);
    dims.set_k(group.k);
    header.add_alpha(group.alpha);
    Append(codes, group.b, CodeBytes(group.n, group.k));
    Append(scales, group.b_scales, ScalePlaneBytes(layout, group.n, group.k));
  }
  AddChunks(v1::WEIGHTS_OPERAND_CODES, codes, chunk_bytes, messages);
  AddChunks(v1::WEIGHTS_OPERAND_SCALES, scales, chunk_bytes, messages);
  return messages;
}

grpc::Status Upload(const Stubs& stubs, const UploadMessages& messages,
                    v1::UploadResponse* response) {
  grpc::ClientContext context;
  const auto writer = stubs.weights->Upload(&context, response);
  for (const v1::UploadRequest& message : messages) {
    if (!writer->Write(message)) break;
  }
  writer->WritesDone();
  return writer->Finish();
}

std::string Register(const Stubs& stubs, const Operands& operands, const std::string& name) {
  v1::UploadResponse response;
  const grpc::Status status = Upload(stubs, UploadMessagesOf(operands, name), &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(response.weights().sealed());
  return name + "@" + std::to_string(response.weights().version());
}

v1::Signature SignatureOf(const Operands& operands, const std::string& weights) {
  const ProblemTypes& types = operands.types();
  v1::Signature signature;
  signature.set_weights(weights);
  signature.set_activation_type(
      static_cast<v1::ActivationType>(static_cast<int>(types.a_type) + 1));
  signature.set_output_type(static_cast<v1::OutputType>(static_cast<int>(types.c_type) + 1));
  signature.set_activation_scale_layout(ToProto(types.a_scale_layout));
  signature.set_output_layout(types.c_layout == OutputLayout::kColumnMajor
                                  ? v1::OUTPUT_LAYOUT_COLUMN_MAJOR
                                  : v1::OUTPUT_LAYOUT_ROW_MAJOR);
  signature.set_group_form(Stacked(operands) ? v1::GROUP_FORM_STACKED : v1::GROUP_FORM_SEPARATE);
  for (const GroupProblem& group : operands.groups()) {
    signature.mutable_exact()->add_m(group.m);
    if (group.row_scale != nullptr) signature.set_row_scale(true);
  }
  return signature;
}

v1::InlineOperands InlineOf(const Operands& operands) {
  const ProblemTypes& types = operands.types();
  v1::InlineOperands out;
  for (const GroupProblem& group : operands.groups()) {
    Append(*out.mutable_activations(), group.a, ActivationBytes(types.a_type, group.m, group.k));
    if (group.a_scales != nullptr) {
      Append(*out.mutable_activation_scales(), group.a_scales,
             ScalePlaneBytes(types.a_scale_layout, group.m, group.k));
    }
    if (group.row_scale != nullptr) {
      out.mutable_row_scale()->Add(group.row_scale, group.row_scale + group.m);
    }
  }
  return out;
}

v1::ExecuteRequest RequestOf(const Operands& operands, const std::string& weights) {
  v1::ExecuteRequest request;
  *request.mutable_signature() = SignatureOf(operands, weights);
  *request.mutable_inline_operands() = InlineOf(operands);
  return request;
}

Verdict Judge(const Operands& operands, const std::string& output) {
  const int64_t element = OutputElementBytes(operands.types().c_type);
  size_t at = 0;
  const auto take = [&](void* to, int64_t bytes) {
    const auto size = std::min(static_cast<size_t>(bytes), output.size() - at);
    if (size > 0) std::memcpy(to, output.data() + at, size);
    at += size;
  };
  if (Stacked(operands)) {
    take(operands.stack().c, static_cast<int64_t>(output.size()));
  } else {
    for (const GroupProblem& group : operands.groups()) {
      take(group.c, int64_t{group.m} * group.n * element);
    }
  }
  return Verify(operands.types(), operands.groups(), {});
}

void ExecuteAndVerify(const Stubs& stubs, const Operands& operands,
                      const v1::ExecuteRequest& request) {
  grpc::ClientContext context;
  v1::ExecuteResponse response;
  const grpc::Status status = stubs.gemm->Execute(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  int64_t elements = 0;
  for (const GroupProblem& group : operands.groups()) elements += int64_t{group.m} * group.n;
  ASSERT_EQ(static_cast<int64_t>(response.output().size()),
            elements * OutputElementBytes(operands.types().c_type));
  const Verdict verdict = Judge(operands, response.output());
  EXPECT_TRUE(verdict.pass) << verdict.ToString();
  EXPECT_EQ(verdict.elements, elements);
}

v1::ExecuteRequest RegisterSlow(const Stubs& stubs, const std::string& name) {
  constexpr int32_t kM = 4096;
  constexpr int32_t kN = 3072;
  constexpr int32_t kK = 4096;
  UploadMessages messages(1);
  v1::UploadHeader& header = *messages[0].mutable_header();
  header.set_name(name);
  header.set_seal(true);
  header.add_groups()->set_n(kN);
  header.mutable_groups(0)->set_k(kK);
  AddChunks(v1::WEIGHTS_OPERAND_CODES, std::string(kN * kK / 2, '\x11'), 1 << 20, messages);
  AddChunks(v1::WEIGHTS_OPERAND_SCALES, std::string(kN * kK / 16, '\x38'), 1 << 20, messages);
  v1::UploadResponse response;
  const grpc::Status status = Upload(stubs, messages, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  v1::ExecuteRequest request;
  v1::Signature& signature = *request.mutable_signature();
  signature.set_weights(name);
  signature.set_activation_type(v1::ACTIVATION_TYPE_NVFP4);
  signature.set_output_type(v1::OUTPUT_TYPE_FP16);
  signature.mutable_exact()->add_m(kM);
  request.mutable_inline_operands()->set_activations(std::string(kM * kK / 2, '\x11'));
  request.mutable_inline_operands()->set_activation_scales(std::string(kM * kK / 16, '\x30'));
  return request;
}

}  // namespace tetrad::e2e
