// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Log: events of the daemon as one line each on standard error.
//
// An event is a short constant text and fields; every value is escaped, so that
// no text of a client or a file can begin a new line or steer a terminal. Two
// formats, logfmt and JSON, hold the same fields; numbers and truth values are
// such in JSON, too, so that they can be compared and summed there. Messages of
// gRPC's own library are taken into the same form, a limited number of them,
// since whoever can connect can cause some.
//
// Thread-safe. Failing to write is not reported: there is nowhere to do so.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace spdlog {
class logger;
}

namespace tetrad {

enum class LogFormat { kLogfmt, kJson };
enum class LogLevel { kDebug, kInfo, kWarning, kError };

// "debug", "info", "warning", "error"
std::string_view LogLevelName(LogLevel level);
std::optional<LogLevel> ParseLogLevel(std::string_view name);

// A key and text, a whole number, a number or a truth value.
struct LogField {
  LogField(std::string_view name, std::string text) : key(name), value(std::move(text)) {}
  LogField(std::string_view name, std::string_view text) : key(name), value(std::string(text)) {}
  LogField(std::string_view name, const char* text) : key(name), value(std::string(text)) {}
  // Of what is not there the line has no field.
  LogField(std::string_view name, const std::optional<std::string>& text) : key(name) {
    if (text.has_value()) value = *text;
  }
  LogField(std::string_view name, double number) : key(name), value(number) {}
  // Not of what merely converts to one, a pointer for example.
  LogField(std::string_view name, std::same_as<bool> auto truth) : key(name), value(truth) {}
  template <std::integral Number>
  requires(!std::same_as<Number, bool> &&
           (std::signed_integral<Number> || sizeof(Number) < sizeof(int64_t)))
      LogField(std::string_view name, Number number)
      : key(name), value(int64_t{number}) {}

  std::string_view key;
  std::variant<std::monostate, std::string, int64_t, double, bool> value;
};

class Log {
 public:
  Log(LogFormat format, LogLevel least);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  // Lines below `least` are not written from now on; what it was before.
  LogLevel SetLevel(LogLevel least);
  // Whether lines of this level are written: asked before fields that cost something.
  bool Takes(LogLevel level) const;
  void Write(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {});
  void Info(std::string_view event, std::initializer_list<LogField> fields = {}) {
    Write(LogLevel::kInfo, event, fields);
  }
  void Warning(std::string_view event, std::initializer_list<LogField> fields = {}) {
    Write(LogLevel::kWarning, event, fields);
  }
  void Error(std::string_view event, std::initializer_list<LogField> fields = {}) {
    Write(LogLevel::kError, event, fields);
  }

 private:
  const LogFormat format_;
  const std::shared_ptr<spdlog::logger> logger_;
  std::atomic<LogLevel> least_;
};

// One line without its end. `time` is text, `level` is info, warning, ...
std::string FormatLogLine(LogFormat format, std::string_view time, std::string_view level,
                          std::string_view event, std::initializer_list<LogField> fields);

}  // namespace tetrad
