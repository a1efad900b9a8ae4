// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/log.h"

#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdio>

#include <grpc/support/log.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "server/line_limit.h"

namespace tetrad {
namespace {

// gRPC calls a bare function, so the log it writes to cannot be a parameter.
std::atomic<Log*> grpc_log{nullptr};
constexpr int64_t kGrpcBurst = 50;
constexpr absl::Duration kGrpcInterval = absl::Seconds(2);

void TakeGrpcMessage(gpr_log_func_args* args) {
  Log* const log = grpc_log.load(std::memory_order_acquire);
  if (log == nullptr) return;
  const LogLevel level = args->severity == GPR_LOG_SEVERITY_ERROR  ? LogLevel::kWarning
                         : args->severity == GPR_LOG_SEVERITY_INFO ? LogLevel::kInfo
                                                                   : LogLevel::kDebug;
  if (!log->Takes(level)) return;
  static LineLimit limit(kGrpcBurst, kGrpcInterval);
  const std::optional<int64_t> left_out = limit.Take(absl::Now());
  if (!left_out.has_value()) return;
  log->Write(level, "grpc", {{"message", args->message}, {"left_out", *left_out}});
}

spdlog::level::level_enum SpdlogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

// As a JSON string, which logfmt readers take too; bytes beyond ASCII are
// written as \u00NN, because they need not be UTF-8.
void AppendQuoted(std::string_view text, std::string& out) {
  out.push_back('"');
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (c == '\n') {
      out.append("\\n");
    } else if (byte < 0x20 || byte >= 0x7F) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", byte);
      out.append(escape);
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
}

bool IsPlain(std::string_view text) {
  if (text.empty()) return false;
  for (const char c : text) {
    if (c <= ' ' || c > '~' || c == '"' || c == '\\' || c == '=') return false;
  }
  return true;
}

struct ValueAppender {
  LogFormat format;
  std::string& out;

  void operator()(std::monostate) const {}
  void operator()(std::string_view text) const {
    if (format == LogFormat::kLogfmt && IsPlain(text)) {
      out.append(text);
    } else {
      AppendQuoted(text, out);
    }
  }
  void operator()(int64_t number) const { out.append(std::to_string(number)); }
  // The shortest text that reads as the same number, in JSON as well.
  void operator()(double number) const {
    char digits[32];
    const char* const end = std::to_chars(digits, digits + sizeof(digits), number).ptr;
    const std::string_view text(digits, static_cast<size_t>(end - digits));
    if (std::isfinite(number)) {
      out.append(text);
    } else {
      (*this)(text);  // JSON has no number for it
    }
  }
  void operator()(bool truth) const { out.append(truth ? "true" : "false"); }
};

void AppendField(LogFormat format, const LogField& field, std::string& out) {
  if (std::holds_alternative<std::monostate>(field.value)) return;
  if (format == LogFormat::kJson) {
    out.append(out.empty() ? "{" : ",");
    AppendQuoted(field.key, out);
    out.push_back(':');
  } else {
    if (!out.empty()) out.push_back(' ');
    out.append(field.key);
    out.push_back('=');
  }
  std::visit(ValueAppender{format, out}, field.value);
}

}  // namespace

std::string_view LogLevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "error";
}

std::optional<LogLevel> ParseLogLevel(std::string_view name) {
  for (const LogLevel level :
       {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}) {
    if (name == LogLevelName(level)) return level;
  }
  return std::nullopt;
}

std::string FormatLogLine(LogFormat format, std::string_view time, std::string_view level,
                          std::string_view event, std::initializer_list<LogField> fields) {
  std::string line;
  AppendField(format, {"time", time}, line);
  AppendField(format, {"level", level}, line);
  AppendField(format, {"event", event}, line);
  for (const LogField& field : fields) AppendField(format, field, line);
  if (format == LogFormat::kJson) line.push_back('}');
  return line;
}

Log::Log(LogFormat format, LogLevel least)
    : format_(format),
      logger_(std::make_shared<spdlog::logger>("tetradd",
                                               std::make_shared<spdlog::sinks::stderr_sink_mt>())),
      least_(least) {
  logger_->set_pattern("%v");
  logger_->set_level(SpdlogLevel(least));
  logger_->set_error_handler([](const std::string&) {});
  grpc_log.store(this, std::memory_order_release);
  gpr_set_log_function(TakeGrpcMessage);
}

Log::~Log() {
  Log* self = this;
  grpc_log.compare_exchange_strong(self, nullptr);
}

LogLevel Log::SetLevel(LogLevel least) {
  logger_->set_level(SpdlogLevel(least));
  return least_.exchange(least);
}

bool Log::Takes(LogLevel level) const { return logger_->should_log(SpdlogLevel(level)); }

void Log::Write(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  if (!Takes(level)) return;
  const std::string time =
      absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::Now(), absl::UTCTimeZone());
  logger_->log(SpdlogLevel(level), spdlog::string_view_t(FormatLogLine(
                                       format_, time, LogLevelName(level), event, fields)));
}

}  // namespace tetrad
