// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tetrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::Signature Signature() {
  v1::Signature signature;
  signature.set_weights("w@3");
  signature.set_activation_type(v1::ACTIVATION_TYPE_NVFP4);
  signature.set_output_type(v1::OUTPUT_TYPE_FP16);
  signature.mutable_exact()->add_m(1);
  return signature;
}

// Every value of an enumeration, one beyond it and one below.
template <typename Wire, typename Set, typename Get, typename Value>
void ExpectTranslates(Set set, Get get, const std::vector<std::pair<Wire, Value>>& legal,
                      int values) {
  for (int wire = -1; wire <= values; ++wire) {
    v1::Signature signature = Signature();
    set(signature, static_cast<Wire>(wire));
    const auto request = FromProto(signature);
    const auto found = std::find_if(legal.begin(), legal.end(),
                                    [wire](const auto& row) { return row.first == wire; });
    EXPECT_EQ(request.ok(), found != legal.end()) << wire;
    if (request.ok() && found != legal.end()) {
      EXPECT_EQ(get(*request), found->second) << wire;
    } else if (!request.ok()) {
      EXPECT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(request.status().message()), HasSubstr("signature."));
    }
  }
}

TEST(CodecTest, EveryEnumerationValue) {
  ExpectTranslates<v1::ActivationType>(
      [](v1::Signature& s, v1::ActivationType v) { s.set_activation_type(v); },
      [](const SignatureRequest& r) { return r.types.a_type; },
      std::vector<std::pair<v1::ActivationType, ActivationType>>{
          {v1::ACTIVATION_TYPE_NVFP4, ActivationType::kNvfp4},
          {v1::ACTIVATION_TYPE_FP16, ActivationType::kFp16},
          {v1::ACTIVATION_TYPE_BF16, ActivationType::kBf16}},
      4);
  ExpectTranslates<v1::OutputType>(
      [](v1::Signature& s, v1::OutputType v) { s.set_output_type(v); },
      [](const SignatureRequest& r) { return r.types.c_type; },
      std::vector<std::pair<v1::OutputType, OutputType>>{{v1::OUTPUT_TYPE_FP16, OutputType::kFp16},
                                                         {v1::OUTPUT_TYPE_BF16, OutputType::kBf16},
                                                         {v1::OUTPUT_TYPE_FP32, OutputType::kFp32}},
      4);
  ExpectTranslates<v1::ScaleLayout>(
      [](v1::Signature& s, v1::ScaleLayout v) { s.set_activation_scale_layout(v); },
      [](const SignatureRequest& r) { return r.types.a_scale_layout; },
      std::vector<std::pair<v1::ScaleLayout, ScaleLayout>>{
          {v1::SCALE_LAYOUT_UNSPECIFIED, ScaleLayout::kLinear},
          {v1::SCALE_LAYOUT_LINEAR, ScaleLayout::kLinear},
          {v1::SCALE_LAYOUT_BLOCKED, ScaleLayout::kBlocked}},
      3);
  ExpectTranslates<v1::OutputLayout>(
      [](v1::Signature& s, v1::OutputLayout v) { s.set_output_layout(v); },
      [](const SignatureRequest& r) { return r.types.c_layout; },
      std::vector<std::pair<v1::OutputLayout, OutputLayout>>{
          {v1::OUTPUT_LAYOUT_UNSPECIFIED, OutputLayout::kRowMajor},
          {v1::OUTPUT_LAYOUT_ROW_MAJOR, OutputLayout::kRowMajor},
          {v1::OUTPUT_LAYOUT_COLUMN_MAJOR, OutputLayout::kColumnMajor}},
      3);
  ExpectTranslates<v1::GroupForm>([](v1::Signature& s, v1::GroupForm v) { s.set_group_form(v); },
                                  [](const SignatureRequest& r) { return r.form; },
                                  std::vector<std::pair<v1::GroupForm, GroupForm>>{
                                      {v1::GROUP_FORM_UNSPECIFIED, GroupForm::kSeparate},
                                      {v1::GROUP_FORM_SEPARATE, GroupForm::kSeparate},
                                      {v1::GROUP_FORM_STACKED, GroupForm::kStacked}},
                                  3);
  ExpectTranslates<v1::Epilogue>(
      [](v1::Signature& s, v1::Epilogue v) { s.set_epilogue(v); },
      [](const SignatureRequest& r) { return r.types.epilogue; },
      std::vector<std::pair<v1::Epilogue, Epilogue>>{{v1::EPILOGUE_NONE, Epilogue::kNone}}, 1);
  ExpectTranslates<v1::MSource>(
      [](v1::Signature& s, v1::MSource v) {
        s.mutable_capacity()->set_m_source(v);
        s.mutable_capacity()->set_rows(5);
      },
      [](const SignatureRequest& r) { return r.m_source; },
      std::vector<std::pair<v1::MSource, MSource>>{{v1::M_SOURCE_OFFSETS, MSource::kOffsets},
                                                   {v1::M_SOURCE_COUNTS, MSource::kCounts}},
      3);
}

TEST(CodecTest, SignatureFieldsAreTaken) {
  v1::Signature signature = Signature();
  signature.set_output_stride(77);
  signature.set_row_scale(true);
  signature.mutable_exact()->add_m(0);
  auto request = FromProto(signature);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->weights, "w@3");
  EXPECT_EQ(request->c_stride, 77);
  EXPECT_TRUE(request->row_scale);
  EXPECT_THAT(request->m, ElementsAre(1, 0));
  EXPECT_EQ(request->m_source, MSource::kHost);

  signature.mutable_capacity()->set_m_source(v1::M_SOURCE_OFFSETS);
  signature.mutable_capacity()->set_rows(1234);
  request = FromProto(signature);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->capacity_rows, 1234);
  EXPECT_TRUE(request->m.empty());
}

v1::ExecuteRequest BlockRequest() {
  v1::ExecuteRequest message;
  message.set_plan("plan-1");
  v1::BlockOperands& operands = *message.mutable_block_operands();
  operands.mutable_activations()->set_block("block-a");
  operands.mutable_activations()->set_offset(16);
  operands.mutable_activations()->set_bytes(64);
  operands.mutable_output()->set_block("block-c");
  return message;
}

TEST(CodecTest, EveryPriority) {
  for (const auto& [wire, priority] : {std::pair{v1::PRIORITY_UNSPECIFIED, Priority::kNormal},
                                       std::pair{v1::PRIORITY_HIGH, Priority::kHigh},
                                       std::pair{v1::PRIORITY_NORMAL, Priority::kNormal},
                                       std::pair{v1::PRIORITY_LOW, Priority::kLow}}) {
    v1::ExecuteRequest message = BlockRequest();
    message.set_priority(wire);
    DecodedExecute decoded;
    ASSERT_TRUE(Decode(message, decoded).ok());
    EXPECT_EQ(decoded.request.priority, priority);
  }
  for (const int unknown : {-1, 4}) {
    v1::ExecuteRequest message = BlockRequest();
    message.set_priority(static_cast<v1::Priority>(unknown));
    DecodedExecute decoded;
    EXPECT_EQ(Decode(message, decoded).message(),
              "priority: unknown value " + std::to_string(unknown));
  }
}

TEST(CodecTest, BlockOperandsAreTaken) {
  v1::ExecuteRequest message = BlockRequest();
  v1::BlockOperands& operands = *message.mutable_block_operands();
  operands.mutable_activation_scales()->set_block("block-s");
  operands.mutable_activation_scales()->set_bytes(5);
  operands.add_alpha(2.5f);
  operands.mutable_row_scale_block()->set_block("block-r");
  operands.mutable_m_values_block()->set_block("block-m");
  DecodedExecute decoded;
  ASSERT_TRUE(Decode(message, decoded).ok());
  ASSERT_NE(decoded.request.blocks, nullptr);
  const BlockOperands& blocks = *decoded.request.blocks;
  EXPECT_EQ(decoded.request.plan, "plan-1");
  EXPECT_EQ(decoded.request.signature, nullptr);
  EXPECT_EQ(blocks.activations.block, "block-a");
  EXPECT_EQ(blocks.activations.offset, 16);
  EXPECT_EQ(blocks.activations.bytes, 64);
  EXPECT_EQ(blocks.activation_scales.block, "block-s");
  EXPECT_EQ(blocks.activation_scales.bytes, 5);
  EXPECT_EQ(blocks.output.block, "block-c");
  EXPECT_EQ(blocks.row_scale.block, "block-r");
  EXPECT_EQ(blocks.m_values.block, "block-m");
  EXPECT_THAT(decoded.request.operands.alpha, ElementsAre(2.5f));
  EXPECT_TRUE(decoded.request.operands.activations.empty());

  operands.mutable_row_scales_inline()->add_row_scale(0.5f);
  operands.mutable_m_values_inline()->add_m(3);
  DecodedExecute small;
  ASSERT_TRUE(Decode(message, small).ok());
  EXPECT_TRUE(small.request.blocks->row_scale.block.empty());
  EXPECT_TRUE(small.request.blocks->m_values.block.empty());
  EXPECT_THAT(small.request.operands.row_scale, ElementsAre(0.5f));
  EXPECT_THAT(small.request.operands.m_values, ElementsAre(3));
}

TEST(CodecTest, InlineOperandsHaveNoBlocks) {
  v1::ExecuteRequest message;
  *message.mutable_signature() = Signature();
  message.set_weights("w@4");
  message.mutable_inline_operands()->set_activations("abc");
  DecodedExecute decoded;
  ASSERT_TRUE(Decode(message, decoded).ok());
  EXPECT_EQ(decoded.request.blocks, nullptr);
  ASSERT_NE(decoded.request.signature, nullptr);
  EXPECT_EQ(decoded.request.signature->weights, "w@3");
  EXPECT_EQ(decoded.request.weights, "w@4");
  EXPECT_EQ(decoded.request.operands.activations, "abc");
}

TEST(CodecTest, ExecuteMessagesThatSayTooLittleAreRefused) {
  struct Case {
    const char* message;
    void (*spoil)(v1::ExecuteRequest&);
  };
  const Case kCases[] = {
      {"one of `plan` and `signature`", [](v1::ExecuteRequest& r) { r.clear_plan(); }},
      {"operands: one of `inline_operands` and `block_operands`",
       [](v1::ExecuteRequest& r) { r.clear_operands(); }},
      {"block_operands.activations: must be set",
       [](v1::ExecuteRequest& r) { r.mutable_block_operands()->clear_activations(); }},
      {"block_operands.output: must be set",
       [](v1::ExecuteRequest& r) { r.mutable_block_operands()->clear_output(); }},
      {"block_operands.output.block: must be set",
       [](v1::ExecuteRequest& r) { r.mutable_block_operands()->mutable_output()->clear_block(); }},
      {"block_operands.activation_scales.block: must be set",
       [](v1::ExecuteRequest& r) { r.mutable_block_operands()->mutable_activation_scales(); }},
      {"block_operands.row_scale_block.block: must be set",
       [](v1::ExecuteRequest& r) { r.mutable_block_operands()->mutable_row_scale_block(); }},
      {"block_operands.m_values_block.block: must be set",
       [](v1::ExecuteRequest& r) { r.mutable_block_operands()->mutable_m_values_block(); }},
      {"block_operands.activations.block: 'a b'",
       [](v1::ExecuteRequest& r) {
         r.mutable_block_operands()->mutable_activations()->set_block("a b");
       }},
      {"weights: 'w w'", [](v1::ExecuteRequest& r) { r.set_weights("w w"); }},
  };
  for (const Case& row : kCases) {
    v1::ExecuteRequest message = BlockRequest();
    row.spoil(message);
    DecodedExecute decoded;
    const absl::Status status = Decode(message, decoded);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << row.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.message));
  }
}

TEST(CodecTest, ReferencesFollowTheGrammar) {
  for (const char* good : {"a", "model.layers.0/up_proj", "w-1@12", "Aa0._/@-"}) {
    EXPECT_TRUE(ValidateReference("f", good).ok()) << good;
  }
  EXPECT_TRUE(ValidateReference("f", std::string(148, 'a')).ok());
  for (const std::string& bad :
       {std::string(), std::string("a b"), std::string("a\0", 2), std::string("\xC3\xA4"),
        std::string("a\n"), std::string("a{"), std::string(149, 'a')}) {
    const absl::Status status = ValidateReference("f", bad);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("f: "));
  }
}

TEST(CodecTest, UploadHeaderExpandsItsGroups) {
  v1::UploadHeader header;
  header.set_name("w");
  header.set_group_count(3);
  header.add_groups()->set_n(8);
  header.mutable_groups(0)->set_k(64);
  header.set_scale_layout(v1::SCALE_LAYOUT_BLOCKED);
  const auto spec = FromProto(header, 3);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->groups, ElementsAre(GroupDims{8, 64}, GroupDims{8, 64}, GroupDims{8, 64}));
  EXPECT_EQ(spec->scale_layout, ScaleLayout::kBlocked);
  EXPECT_EQ(spec->source, "upload");
  EXPECT_FALSE(FromProto(header, 2).ok());
  header.set_group_count(-1);
  EXPECT_FALSE(FromProto(header, 3).ok());
}

TEST(CodecTest, WeightsInfoListsEqualGroupsOnce) {
  WeightsInfo info;
  info.spec.name = "w";
  info.spec.groups = {{8, 64}, {8, 64}};
  info.spec.alpha = {1, 1};
  info.version = 4;
  v1::WeightsInfo out;
  ToProto(info, out);
  EXPECT_EQ(out.group_count(), 2);
  EXPECT_EQ(out.groups_size(), 1);
  EXPECT_EQ(out.alpha_size(), 0);
  EXPECT_EQ(out.version(), 4);
  info.spec.groups[1].n = 16;
  info.spec.alpha[1] = 2;
  v1::WeightsInfo unequal;
  ToProto(info, unequal);
  EXPECT_EQ(unequal.groups_size(), 2);
  EXPECT_EQ(unequal.alpha_size(), 2);
}

}  // namespace
}  // namespace tetrad
