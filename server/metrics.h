// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Metrics: what the daemon counts, and everything else it shows, as families
// for a scrape. Names, units and labels are described in docs/metrics.md.
//
// Counting is thread-safe and takes no lock, except the count per weights name,
// whose labels are bounded: names beyond kWeightsLabels at a time are counted
// as "other". Levels are read from a snapshot at each collection.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "grpcpp/support/status.h"
#include "prometheus/metric_family.h"

#include "engine/engine.h"
#include "engine/support/error_detail.h"
#include "server/seconds_histogram.h"
#include "server/ticket_table.h"

namespace tetrad {

enum class Method : uint8_t {
  kUpload,
  kLoad,
  kSeal,
  kList,
  kDrop,
  kPrepare,
  kExecute,
  kRelease,
  kGetStatus,
  kExecuteStream,
  kAttach,
  kDetach,
  kAllocate,
  kWrite,
  kRead,
  kFree,
  kListBlocks,
  kSubmit,
  kWait,
  kWatch,
  kCancel,
  kGetUpload,
  kGetWrite,
  kDrain,
  kSetLogLevel,
  kEndLease,
};
inline constexpr size_t kMethods = static_cast<size_t>(Method::kEndLease) + 1;

// "tetrad.v1.Gemm/Execute"
std::string_view MethodName(Method method);

class Metrics {
 public:
  static constexpr size_t kWeightsLabels = 64;

  void CallBegan(Method method);
  void CallEnded(Method method, grpc::StatusCode code, int64_t nanoseconds, int64_t received_bytes,
                 int64_t sent_bytes);
  // A launch that completed; `weights` is name@version, `floor_us` its plan's floor.
  void Executed(const Timings& timings, double floor_us, std::string_view weights);
  // A request of an ExecuteStream was answered.
  void StreamAnswered(grpc::StatusCode code);
  // A client let a stream, or a large reply, stand still for too long.
  void StreamStalled(Method method);
  // A call was refused to a client; how that is counted.
  enum class Refused : uint8_t { kNoCredential, kBadCredential, kNotAllowed, kNotYours };
  static constexpr size_t kRefused = 4;
  Refused CountRefusal(Reason reason);
  // A ticket has its outcome.
  void TicketEnded(grpc::StatusCode code);
  // No version of `name` is left: what was counted for it goes to "other", and
  // its label is free for another name.
  void WeightsGone(std::string_view name);

  // Levels at the moment of a scrape.
  struct Levels {
    EngineStats engine;
    int64_t plan_capacity = 0;
    int64_t staging_limit_bytes = 0;
    int64_t call_bytes = 0;
    int64_t call_limit_bytes = 0;
    int64_t clients = 0;
    int64_t refused_client_calls = 0;
    TicketTable::Stats tickets;
    int64_t ticket_bytes = 0;
    int64_t ticket_limit_bytes = 0;
    int64_t attach_streams = 0;
    int64_t execute_streams = 0;
    int64_t health_watches = 0;
    bool serving = false;
    bool tls_refused = false;     // the old files of TLS go on serving
    bool access_refused = false;  // the old access file goes on deciding
    absl::Time certificate_expires = absl::InfiniteFuture();  // infinite: there is none
  };
  std::vector<prometheus::MetricFamily> Collect(const Levels& levels,
                                                const DeviceLimits& device) const;

 private:
  static constexpr size_t kCodes = 17;
  struct MethodCounts {
    std::array<std::atomic<uint64_t>, kCodes> ended{};
    std::atomic<int64_t> in_flight{0};
    std::atomic<uint64_t> received_bytes{0};
    std::atomic<uint64_t> sent_bytes{0};
    std::atomic<uint64_t> stalled{0};
    SecondsHistogram seconds;
  };

  std::array<MethodCounts, kMethods> methods_;
  std::array<std::atomic<uint64_t>, kCodes> stream_answers_{};
  std::array<std::atomic<uint64_t>, kRefused> refused_{};
  std::array<std::atomic<uint64_t>, kCodes> ticket_outcomes_{};
  SecondsHistogram queue_seconds_;
  SecondsHistogram launch_seconds_;
  SecondsHistogram device_seconds_;

  mutable std::mutex mutex_;
  std::map<std::string, uint64_t, std::less<>> executions_;  // guarded by mutex_
  uint64_t other_executions_ = 0;                            // guarded by mutex_
  std::atomic<uint64_t> floor_ns_{0};
};

}  // namespace tetrad
