// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/allocation_log.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

using Op = AllocationEvent::Op;
using Kind = AllocationEvent::Kind;

constexpr std::string_view kFirstLine = "tetrad allocation log 1\n";
constexpr std::string_view kStopped = "stopped limit_bytes=";
constexpr int64_t kStopLineBytes = 48;  // room for the last line
constexpr int32_t kLastCode = static_cast<int32_t>(absl::StatusCode::kUnauthenticated);

// As absl::StatusCodeToString, which allocates.
constexpr std::string_view kOutcomes[kLastCode + 1] = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};
constexpr std::string_view kOps[] = {"allocate", "free"};
constexpr std::string_view kKinds[] = {"block", "whole"};

// One line in the making, without the heap; longer than any event or last line.
class Line {
 public:
  Line& Word(std::string_view word) {
    std::copy(word.begin(), word.end(), text_ + size_);
    size_ += word.size();
    return *this;
  }
  template <class Number>
  Line& Count(Number number) {
    size_ = std::to_chars(text_ + size_, std::end(text_), number).ptr - text_;
    return *this;
  }
  std::string_view text() const { return {text_, size_}; }

 private:
  char text_[160];
  size_t size_ = 0;
};

Line EventLine(const AllocationEvent& event) {
  const auto code = static_cast<int32_t>(event.outcome);
  const bool known = code >= 0 && code <= kLastCode;
  Line line;
  line.Count(event.us).Word(" ").Count(event.thread).Word(" ");
  line.Word(kOps[static_cast<size_t>(event.op)]).Word(" ");
  line.Word(kKinds[static_cast<size_t>(event.kind)]).Word(" ");
  line.Count(event.number).Word(" ").Count(event.bytes).Word(" ");
  line.Word(kOutcomes[known ? code : static_cast<int32_t>(absl::StatusCode::kUnknown)]).Word("\n");
  return line;
}

Line StopLine(int64_t limit_bytes) {
  Line line;
  line.Word(kStopped).Count(limit_bytes).Word("\n");
  return line;
}

absl::Status OpenError(const std::string& path, int error) {
  const std::string message =
      absl::StrCat("allocation log ", path, ": ", std::generic_category().message(error));
  switch (error) {
    case EEXIST:  // a recording is never overwritten
      return absl::FailedPreconditionError(message);
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    default:
      return absl::InternalError(message);
  }
}

// Reads one line field by field; the first failure stays.
class LineReader {
 public:
  LineReader(std::string_view line, size_t number) : rest_(line), number_(number) {}

  absl::Status Bad(std::string_view field, std::string_view value, std::string_view want) const {
    constexpr size_t kShown = 40;
    return absl::InvalidArgumentError(
        absl::StrCat("line ", number_, ": ", ToAbsl(field), "='",
                     absl::CHexEscape(ToAbsl(value.substr(0, kShown))),
                     value.size() > kShown ? "...'" : "'", ": ", ToAbsl(want)));
  }

  // The next field; the last one is what is left of the line.
  std::string_view Next(bool last = false) {
    const size_t end = last ? std::string_view::npos : rest_.find(' ');
    const std::string_view field = rest_.substr(0, end);
    rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
    return field;
  }
  // Digits without leading zeros, as the writer writes them.
  template <class Number>
  void Count(std::string_view field, Number least, Number most, Number* out) {
    const std::string_view text = Next();
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    const bool plain = !text.empty() && (text[0] != '0' || text.size() == 1) && text[0] != '-';
    if (!whole || !plain || value < least || value > most) {
      Fail(Bad(field, text, absl::StrCat("must be a number from ", least, " to ", most)));
    }
    *out = value;
  }
  template <class Enum, size_t kCount>
  void OneOf(std::string_view field, const std::string_view (&words)[kCount], Enum* out,
             bool last = false) {
    const std::string_view text = Next(last);
    const auto* const found = std::find(std::begin(words), std::end(words), text);
    if (found == std::end(words)) {
      Fail(Bad(field, text, absl::StrCat("must be a word like ", ToAbsl(words[0]))));
      return;
    }
    *out = static_cast<Enum>(found - std::begin(words));
  }
  const absl::Status& status() const { return status_; }

 private:
  static absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }
  void Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  std::string_view rest_;
  const size_t number_;
  absl::Status status_;
};

using Live = absl::flat_hash_map<uint64_t, std::pair<Kind, int64_t>>;

// What the line says must be possible after those before it.
absl::Status Follow(const LineReader& line, const AllocationEvent& event, int64_t before_us,
                    Live& live) {
  const std::string number = absl::StrCat(event.number);
  if (event.us < before_us) {
    return line.Bad("us", absl::StrCat(event.us), "must not be below that of the line before");
  }
  const auto found = live.find(event.number);
  if (event.op == Op::kAllocate) {
    if (found != live.end()) return line.Bad("number", number, "is in use");
    if (event.outcome == absl::StatusCode::kOk) live[event.number] = {event.kind, event.bytes};
    return absl::OkStatus();
  }
  if (event.outcome != absl::StatusCode::kOk) {
    return line.Bad("outcome", kOutcomes[static_cast<size_t>(event.outcome)],
                    "must be OK, a free does not fail");
  }
  if (found == live.end()) return line.Bad("number", number, "is not in use");
  if (found->second.first != event.kind) {
    return line.Bad("kind", kKinds[static_cast<size_t>(event.kind)], "was allocated as another");
  }
  if (found->second.second != event.bytes) {
    return line.Bad("bytes", absl::StrCat(event.bytes),
                    absl::StrCat("must be the ", found->second.second, " allocated"));
  }
  live.erase(found);
  return absl::OkStatus();
}

}  // namespace

AllocationLog::AllocationLog(std::string path, UniqueFd fd, Options options)
    : path_(std::move(path)),
      options_(std::move(options)),
      fd_(std::move(fd)),
      buffer_(std::make_unique<char[]>(kBufferBytes)) {}

absl::StatusOr<std::unique_ptr<AllocationLog>> AllocationLog::Open(const std::string& path) {
  return Open(path, Options());
}

absl::StatusOr<std::unique_ptr<AllocationLog>> AllocationLog::Open(const std::string& path,
                                                                   Options options) {
  if (options.limit_bytes < kLeastLimitBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("limit_bytes=", options.limit_bytes, " must be at least ", kLeastLimitBytes));
  }
  if (!options.now_us) {
    options.now_us = [start = std::chrono::steady_clock::now()] {
      return std::chrono::duration_cast<std::chrono::microseconds>(
                 std::chrono::steady_clock::now() - start)
          .count();
    };
  }
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) return OpenError(path, errno);
  std::unique_ptr<AllocationLog> log(new AllocationLog(path, std::move(fd), std::move(options)));
  std::lock_guard lock(log->mutex_);
  log->Append(kFirstLine);
  return log;
}

AllocationLog::~AllocationLog() {
  std::lock_guard lock(mutex_);
  Finish();
}

void AllocationLog::Record(AllocationEvent event) noexcept {
  std::lock_guard lock(mutex_);
  if (!recording_) return;
  last_us_ = event.us = std::max(last_us_, options_.now_us());
  event.thread = ThreadNumber();
  const Line line = EventLine(event);
  const int64_t after = written_bytes_ + static_cast<int64_t>(buffered_bytes_ + line.text().size());
  if (after + kStopLineBytes <= options_.limit_bytes) {
    Append(line.text());
    return;
  }
  Append(StopLine(options_.limit_bytes).text());
  Finish();
}

absl::Status AllocationLog::Close() {
  std::lock_guard lock(mutex_);
  Finish();
  if (error_ == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("allocation log ", path_, ": recording ended after ",
                                          written_bytes_,
                                          " bytes: ", std::generic_category().message(error_)));
}

int32_t AllocationLog::ThreadNumber() noexcept {
  const std::thread::id self = std::this_thread::get_id();
  for (int32_t i = 0; i < kOtherThread; ++i) {
    if (threads_[i] == std::thread::id()) threads_[i] = self;
    if (threads_[i] == self) return i;
  }
  return kOtherThread;
}

void AllocationLog::Append(std::string_view line) noexcept {
  if (line.size() > kBufferBytes - buffered_bytes_) WriteBuffer();
  if (!recording_) return;
  std::memcpy(buffer_.get() + buffered_bytes_, line.data(), line.size());
  buffered_bytes_ += line.size();
}

void AllocationLog::WriteBuffer() noexcept {
  size_t done = 0;
  while (done < buffered_bytes_) {
    const ssize_t got = ::write(fd_.get(), buffer_.get() + done, buffered_bytes_ - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      error_ = errno;
      recording_ = false;
      // Half a line would make the whole file unreadable; where this fails too, it does.
      [[maybe_unused]] const int cut = ::ftruncate(fd_.get(), written_bytes_);
      break;
    }
    done += static_cast<size_t>(got);
  }
  if (recording_) written_bytes_ += static_cast<int64_t>(buffered_bytes_);
  buffered_bytes_ = 0;
}

void AllocationLog::Finish() noexcept {
  if (recording_) WriteBuffer();
  recording_ = false;
  fd_.Reset();
}

absl::StatusOr<AllocationTrace> ParseAllocationLog(std::string_view text) {
  AllocationTrace trace;
  Live live;
  int64_t before_us = 0;
  for (size_t number = 1; number == 1 || !text.empty(); ++number) {
    const size_t end = text.find('\n');
    const std::string_view content = text.substr(0, end);
    LineReader line(content, number);
    if (end == std::string_view::npos) return line.Bad("line", content, "must end with a newline");
    text.remove_prefix(end + 1);
    if (number == 1) {
      if (content != kFirstLine.substr(0, kFirstLine.size() - 1)) {
        return line.Bad("version", content, "must be 'tetrad allocation log 1'");
      }
      continue;
    }
    if (trace.stopped_limit_bytes != 0) return line.Bad("line", content, "follows the last line");
    if (content.substr(0, kStopped.size()) == kStopped) {
      LineReader value(content.substr(kStopped.size()), number);
      value.Count("limit_bytes", AllocationLog::kLeastLimitBytes, INT64_MAX,
                  &trace.stopped_limit_bytes);
      TETRAD_RETURN_IF_ERROR(value.status());
      if (StopLine(trace.stopped_limit_bytes).text().size() != content.size() + 1) {
        return line.Bad("limit_bytes", content, "must end the line");
      }
      continue;
    }
    AllocationEvent event;
    line.Count<int64_t>("us", 0, INT64_MAX, &event.us);
    line.Count<int32_t>("thread", 0, AllocationLog::kOtherThread, &event.thread);
    line.OneOf("op", kOps, &event.op);
    line.OneOf("kind", kKinds, &event.kind);
    line.Count<uint64_t>("number", 1, UINT64_MAX, &event.number);
    line.Count<int64_t>("bytes", 1, INT64_MAX, &event.bytes);
    line.OneOf("outcome", kOutcomes, &event.outcome, /*last=*/true);
    TETRAD_RETURN_IF_ERROR(line.status());
    TETRAD_RETURN_IF_ERROR(Follow(line, event, before_us, live));
    before_us = event.us;
    trace.events.push_back(event);
  }
  return trace;
}

std::string FormatAllocationLog(const AllocationTrace& trace) {
  std::string text(kFirstLine);
  for (const AllocationEvent& event : trace.events) text += EventLine(event).text();
  if (trace.stopped_limit_bytes != 0) text += StopLine(trace.stopped_limit_bytes).text();
  return text;
}

}  // namespace tetrad
