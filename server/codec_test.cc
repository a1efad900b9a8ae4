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
