// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// No enumeration value that this daemon does not know is taken for another: every enumeration
// field of every request, found by reflection, so that a new one cannot be forgotten.
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "tetrad/v1/admin.pb.h"
#include "tetrad/v1/status.pb.h"

#include "engine/support/error_detail.h"
#include "server/codec.h"

namespace tetrad {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using ::testing::HasSubstr;

constexpr int kUnknown = 999;

struct Case {
  std::vector<std::string> samples;  // valid, and between them with every enumeration field
  std::function<absl::Status(const Message&)> decode;
};

template <typename M>
const M& As(const Message& message) {
  return dynamic_cast<const M&>(message);
}

absl::Status DecodeExecute(const v1::ExecuteRequest& message) {
  DecodedExecute decoded;
  return Decode(message, decoded);
}

// By the name of the request message.
std::map<std::string, Case> Cases() {
  const std::string types =
      "weights: 'w' activation_type: ACTIVATION_TYPE_NVFP4 output_type: OUTPUT_TYPE_FP16 ";
  const std::string exact = "signature { " + types + "exact { m: 1 } } ";
  const std::string capacity =
      "signature { " + types +
      "group_form: GROUP_FORM_STACKED capacity { m_source: M_SOURCE_COUNTS rows: 1 } } ";
  const std::string execute = capacity + "inline_operands {} ";
  const std::string inner = "execute { " + execute + "}";
  return {
      {"PrepareRequest",
       {{exact, capacity},
        [](const Message& m) {
          return FromProto(As<v1::PrepareRequest>(m).signature()).status();
        }}},
      {"ExecuteRequest",
       {{execute, exact + "block_operands { activations { block: 'a' } output { block: 'b' } }"},
        [](const Message& m) { return DecodeExecute(As<v1::ExecuteRequest>(m)); }}},
      {"ExecuteStreamRequest",
       {{inner},
        [](const Message& m) { return DecodeExecute(As<v1::ExecuteStreamRequest>(m).execute()); }}},
      {"SubmitRequest",
       {{inner},
        [](const Message& m) { return DecodeExecute(As<v1::SubmitRequest>(m).execute()); }}},
      {"UploadRequest",
       {{"header { name: 'w' groups { n: 1 k: 32 } }", "chunk { operand: WEIGHTS_OPERAND_CODES }"},
        [](const Message& m) {
          const auto& upload = As<v1::UploadRequest>(m);
          return upload.has_header() ? FromProto(upload.header(), 1).status()
                                     : FromProto(upload.chunk().operand()).status();
        }}},
      {"LoadRequest", {{"name: 'w'"}, [](const Message& m) {
                         return FromProto(As<v1::LoadRequest>(m).dialect()).status();
                       }}}};
}

// "signature.capacity.m_source" and the like, of all that a message may hold.
void FindFields(const Descriptor& type, const std::string& prefix, std::set<std::string>& out) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.enum_type() != nullptr) out.insert(prefix + field.name());
    // The schema has no message within itself.
    if (field.message_type() != nullptr) {
      FindFields(*field.message_type(), prefix + field.name() + ".", out);
    }
  }
}

// Sets the field, if all messages on the way are there.
bool SetUnknown(Message& message, const std::string& path) {
  const size_t dot = path.find('.');
  const FieldDescriptor* const field =
      message.GetDescriptor()->FindFieldByName(path.substr(0, dot));
  const auto& reflection = *message.GetReflection();
  if (dot == std::string::npos) {
    reflection.SetEnumValue(&message, field, kUnknown);
    return true;
  }
  return !field->is_repeated() && reflection.HasField(message, field) &&
         SetUnknown(*reflection.MutableMessage(&message, field), path.substr(dot + 1));
}

std::vector<const Descriptor*> Requests() {
  std::vector<const Descriptor*> requests;
  for (const Descriptor* of_file :
       {v1::ExecuteRequest::descriptor(), v1::UploadRequest::descriptor(),
        v1::AttachRequest::descriptor(), v1::GetStatusRequest::descriptor(),
        v1::DrainRequest::descriptor()}) {
    for (int s = 0; s < of_file->file()->service_count(); ++s) {
      const auto& service = *of_file->file()->service(s);
      for (int m = 0; m < service.method_count(); ++m) {
        requests.push_back(service.method(m)->input_type());
      }
    }
  }
  return requests;
}

TEST(UnknownValuesTest, EveryEnumerationFieldOfEveryRequestRefusesThem) {
  const std::map<std::string, Case> cases = Cases();
  size_t fields = 0;
  for (const Descriptor* type : Requests()) {
    std::set<std::string> paths;
    FindFields(*type, "", paths);
    if (paths.empty()) continue;
    ASSERT_TRUE(cases.contains(type->name())) << type->name() << " has a field " << *paths.begin();
    const Case& each = cases.at(type->name());
    for (const std::string& path : paths) {
      SCOPED_TRACE(type->name() + "." + path);
      ++fields;
      bool tried = false;
      for (const std::string& sample : each.samples) {
        const std::unique_ptr<Message> message(
            google::protobuf::MessageFactory::generated_factory()->GetPrototype(type)->New());
        ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(sample, message.get()));
        ASSERT_TRUE(each.decode(*message).ok()) << each.decode(*message);
        if (!SetUnknown(*message, path)) continue;
        tried = true;
        const absl::Status status = each.decode(*message);
        EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
        EXPECT_THAT(std::string(status.message()), HasSubstr("999"));
        const auto detail = DetailOf(status);
        ASSERT_TRUE(detail.has_value());
        EXPECT_EQ(detail->reason, Reason::kUnknownEnumValue);
        ASSERT_EQ(detail->violations.size(), 1u);
        EXPECT_EQ(detail->violations[0].value, "999");
        EXPECT_TRUE(path.ends_with(detail->violations[0].field)) << detail->violations[0].field;
      }
      EXPECT_TRUE(tried) << "no sample has the message it is in";
    }
  }
  EXPECT_GE(fields, 30u);
}

}  // namespace
}  // namespace tetrad
