// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/output.h"

#include <optional>
#include <utility>

#include <google/protobuf/util/json_util.h>

#include "absl/strings/string_view.h"

#include "clients/cpp/error_info.h"

namespace tetrad::cli {
namespace {

// One document on one line; text that is not UTF-8 is replaced, never thrown over.
std::string Dump(const nlohmann::json& document) {
  return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

nlohmann::json ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(message, &text, options).ok()) return nullptr;
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

void Output::PrintMessage(const google::protobuf::Message& message) const {
  PrintJson(ToJson(message));
}

void Output::PrintJson(const nlohmann::json& document) const {
  out << Dump(document) << '\n' << std::flush;
}

void Output::PrintText(std::string_view text) const { out << text << std::flush; }

void Output::PrintError(const absl::Status& status) const {
  const std::string code = absl::StatusCodeToString(status.code());
  const std::optional<ErrorInfo> info = ErrorInfoOf(status);
  err << "tetradctl: " << code << ": " << status.message();
  if (info.has_value()) err << " [" << info->reason << ']';
  err << '\n';
  nlohmann::json error = {{"code", code}, {"message", std::string(status.message())}};
  if (info.has_value()) {
    error["reason"] = info->reason;
    for (const ErrorInfo::Violation& violation : info->violations) {
      err << "  " << violation.field << ": " << violation.description << '\n';
      error["violations"].push_back(
          {{"field", violation.field}, {"description", violation.description}});
    }
    if (info->retry_delay.has_value()) {
      error["retry_seconds"] = absl::ToDoubleSeconds(*info->retry_delay);
    }
  }
  err << std::flush;
  if (json) PrintJson({{"error", std::move(error)}});
}

}  // namespace tetrad::cli
