// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/json_events.h"

#include <exception>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include <nlohmann/json.hpp>

#include "engine/checkpoint/printable.h"
#include "engine/support/error_detail.h"

namespace tetrad {
namespace {

using Kind = JsonEvent::Kind;

// What nlohmann::json::sax_parse wants of a listener; every member returns "go on".
class Listener {
 public:
  explicit Listener(absl::FunctionRef<absl::Status(const JsonEvent&)> handler)
      : handler_(handler) {}

  bool null() { return Tell(Kind::kBoolOrNull); }
  bool boolean(bool) { return Tell(Kind::kBoolOrNull); }
  bool number_integer(int64_t) { return Tell(Kind::kOtherNumber); }  // only with a minus sign
  bool number_unsigned(uint64_t value) { return Tell(Kind::kUnsigned, {}, value); }
  bool number_float(double, const std::string&) { return Tell(Kind::kOtherNumber); }
  bool string(std::string& value) { return Tell(Kind::kString, value); }
  bool binary(nlohmann::json::binary_t&) { return Tell(Kind::kBoolOrNull); }  // not in JSON text
  bool key(std::string& value) { return Tell(Kind::kKey, value); }
  bool start_object(size_t) { return Begin(Kind::kBeginObject); }
  bool end_object() { return End(Kind::kEndObject); }
  bool start_array(size_t) { return Begin(Kind::kBeginArray); }
  bool end_array() { return End(Kind::kEndArray); }

  bool parse_error(size_t position, const std::string& token, const nlohmann::json::exception& e) {
    constexpr int kNumberOverflow = 406;
    status_ = ReasonError(
        Reason::kIllegalCheckpoint,
        absl::StrCat(e.id == kNumberOverflow ? "number out of range" : "not well-formed JSON",
                     " at byte ", position, ", near `", Printable(token, 40), "`"));
    return false;
  }

  absl::Status Take() { return std::move(status_); }

 private:
  bool Tell(Kind kind, std::string_view text = {}, uint64_t number = 0) {
    status_ = handler_({kind, depth_, text, number});
    return status_.ok();
  }
  bool Begin(Kind kind) {
    if (depth_ == kMaxJsonDepth) {
      status_ = ReasonError(Reason::kIllegalCheckpoint,
                            absl::StrCat("JSON nested deeper than ", kMaxJsonDepth, " levels"));
      return false;
    }
    const bool go_on = Tell(kind);
    ++depth_;
    return go_on;
  }
  bool End(Kind kind) {
    --depth_;
    return Tell(kind);
  }

  absl::FunctionRef<absl::Status(const JsonEvent&)> handler_;
  absl::Status status_;
  int depth_ = 0;
};

}  // namespace

absl::Status ParseJson(std::string_view text,
                       absl::FunctionRef<absl::Status(const JsonEvent&)> handler) {
  // The library takes a NUL byte for the end of its input; whatever follows would go unseen.
  if (const size_t at = text.find('\0'); at != std::string_view::npos) {
    return ReasonError(Reason::kIllegalCheckpoint,
                       absl::StrCat("NUL byte at byte ", at, " of the JSON text"));
  }
  if (const size_t at = FindInvalidUtf8(text); at != std::string_view::npos) {
    return ReasonError(Reason::kIllegalCheckpoint,
                       absl::StrCat("not UTF-8 at byte ", at, " of the JSON text: `",
                                    Printable(text.substr(at, 8)), "`"));
  }
  Listener listener(handler);
  try {
    nlohmann::json::sax_parse(text, &listener);
  } catch (const std::exception& e) {
    return ReasonError(Reason::kHostMemory, absl::StrCat("JSON parser: ", Printable(e.what())));
  }
  return listener.Take();
}

}  // namespace tetrad
