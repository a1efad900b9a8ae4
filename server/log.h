// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Log: events of the daemon as one line each on standard error.
//
// An event is a short constant text and fields; every value is escaped, so that
// no text of a client or a file can begin a new line or steer a terminal. Two
// formats, logfmt and JSON, hold the same fields. Messages of gRPC's own
// library are taken into the same form.
//
// Thread-safe. Failing to write is not reported: there is nowhere to do so.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

namespace spdlog {
class logger;
}

namespace tetrad {

enum class LogFormat { kLogfmt, kJson };
enum class LogLevel { kDebug, kInfo, kWarning, kError };

struct LogField {
  std::string_view key;
  std::string value;
};

class Log {
 public:
  Log(LogFormat format, LogLevel least);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

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
};

// One line without its end. `time` is text, `level` is info, warning, ...
std::string FormatLogLine(LogFormat format, std::string_view time, std::string_view level,
                          std::string_view event, std::initializer_list<LogField> fields);

}  // namespace tetrad
