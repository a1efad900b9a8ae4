// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// AllocationLog: what a pool was asked for, one event a line, so that its
// behaviour can be read with grep and replayed against another pool.
//
//   tetrad allocation log 1
//   17 0 allocate block 1 4096 OK
//   23 1 allocate whole 2 33554432 RESOURCE_EXHAUSTED
//   40 0 free block 1 4096 OK
//   stopped limit_bytes=268435456
//
// Fields: microseconds since the start, never falling; thread, numbered by first
// appearance (kOtherThread beyond the table); what was done to what; number of
// the block or allocation, of its pool; bytes asked for; outcome. The last line
// is there only if the limit ended the log. The text is exact: what is accepted
// reads back to the same bytes.
//
// Writer: thread-safe, one log per pool. It allocates nothing and writes in
// pieces of kBufferBytes, so that a slow disk costs now and then one write. A
// failed write ends the recording, with the file cut after a whole line where
// possible, and is told by Close(); nothing reaches the pool.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/support/unique_fd.h"

namespace tetrad {

struct AllocationEvent {
  enum class Op : uint8_t { kAllocate, kFree };
  enum class Kind : uint8_t { kBlock, kWhole };
  int64_t us = 0;
  int32_t thread = 0;
  Op op = Op::kAllocate;
  Kind kind = Kind::kBlock;
  uint64_t number = 0;  // from 1
  int64_t bytes = 0;
  absl::StatusCode outcome = absl::StatusCode::kOk;
  bool operator==(const AllocationEvent&) const = default;
};

class AllocationLog {
 public:
  static constexpr int32_t kOtherThread = 256;
  static constexpr size_t kBufferBytes = size_t{64} << 10;
  static constexpr int64_t kLeastLimitBytes = 256;

  struct Options {
    int64_t limit_bytes = int64_t{256} << 20;  // of the file
    std::function<int64_t()> now_us;           // unset: the steady clock since Open()
  };
  // A new file; FAILED_PRECONDITION if there is one of this name.
  static absl::StatusOr<std::unique_ptr<AllocationLog>> Open(const std::string& path,
                                                             Options options);
  static absl::StatusOr<std::unique_ptr<AllocationLog>> Open(const std::string& path);
  ~AllocationLog();

  // Sets the event's time and thread itself.
  void Record(AllocationEvent event) noexcept;
  // Writes what is buffered and ends the recording; the error that ended it before.
  absl::Status Close();

 private:
  AllocationLog(std::string path, UniqueFd fd, Options options);
  int32_t ThreadNumber() noexcept;              // needs mutex_
  void Append(std::string_view line) noexcept;  // needs mutex_
  void WriteBuffer() noexcept;                  // needs mutex_
  void Finish() noexcept;                       // needs mutex_

  const std::string path_;
  const Options options_;
  std::mutex mutex_;
  UniqueFd fd_;                                        // guarded by mutex_
  bool recording_ = true;                              // guarded by mutex_
  int error_ = 0;                                      // errno that ended it; guarded by mutex_
  int64_t written_bytes_ = 0;                          // in the file; guarded by mutex_
  int64_t last_us_ = 0;                                // guarded by mutex_
  size_t buffered_bytes_ = 0;                          // guarded by mutex_
  const std::unique_ptr<char[]> buffer_;               // guarded by mutex_
  std::array<std::thread::id, kOtherThread> threads_;  // by number; guarded by mutex_
};

struct AllocationTrace {
  std::vector<AllocationEvent> events;
  int64_t stopped_limit_bytes = 0;  // 0: the log was not cut off
};

// INVALID_ARGUMENT names line, field and value. Beyond the form it holds that
// numbers in use are not given again and that what is freed was in use, as it was.
absl::StatusOr<AllocationTrace> ParseAllocationLog(std::string_view text);
// The text that reads as `trace`.
std::string FormatAllocationLog(const AllocationTrace& trace);

}  // namespace tetrad
