// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Engine: the product without a network. Owns a device, the weights, the plan
// cache and the executor, and is all that the server includes.
//
// Thread-safe. Every entry point takes the client's identity. Nothing blocks
// on the device except where said; Execute() answers through a callback, once,
// from the engine's thread or (for a refusal) from the caller's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "engine/device.h"
#include "engine/executor.h"
#include "engine/inline_operands.h"
#include "engine/plan.h"
#include "engine/staging.h"
#include "engine/weights.h"

namespace tetrad {

struct EngineOptions {
  int64_t plan_capacity = 512;          // cached plans, at least 1
  int64_t plan_host_bytes = 1ll << 30;  // host memory of cached plans
  int64_t max_plan_handles = 65536;
  int64_t max_inline_bytes = 256ll << 20;  // operands of a request plus its reply
  int64_t staging_bytes = 4ll << 30;       // device memory for inline operands, all plans
  int64_t queue_depth = 1024;              // launches admitted and not yet on the device
  WeightsRegistry::Limits weights;
  SignatureLimits signatures;
};

// A signature as a client states it: N, K, the groups and the scale layout of
// the weights come from `weights`, and m per group from `m`.
struct SignatureRequest {
  std::string weights;  // name or name@version
  ProblemTypes types;   // b_scale_layout is taken from the weights
  GroupForm form = GroupForm::kSeparate;
  MSource m_source = MSource::kHost;
  std::vector<int32_t> m;     // host M: one per group
  int64_t capacity_rows = 0;  // device-side M
  int64_t c_stride = 0;
  bool row_scale = false;
};

struct PreparedPlan {
  std::string handle;
  std::shared_ptr<const Plan> plan;
  std::string weights;  // name@version
  bool cached = false;
};

// Names a running Execute() for Cancel().
enum class ExecutionId : uint64_t { kNone = 0 };

struct ExecuteRequest {
  std::string client;  // identity
  std::string plan;    // handle, or empty and `signature` decides
  const SignatureRequest* signature = nullptr;
  std::string weights;      // with a handle: overrides what it was prepared with
  InlineOperands operands;  // what it names must stay valid until Execute() returns
  absl::Time deadline = absl::InfiniteFuture();
  Priority priority = Priority::kNormal;
};

// A finished launch and its output, still in device memory. Must be gone before
// the engine is.
class Executed {
 public:
  Executed(StagingLease staging, Timings timings);
  int64_t output_bytes() const { return plan().wire.c_bytes; }
  // Copies the output, groups concatenated, gaps zero. `out` has output_bytes().
  absl::Status CopyOutput(std::span<std::byte> out) const;
  const Timings& timings() const { return timings_; }
  double share() const;  // floor over device time
  const Plan& plan() const { return staging_.plan(); }
  std::string weights() const;  // name@version used

 private:
  StagingLease staging_;
  Timings timings_;
};

struct EngineStats {
  MemoryUse memory;
  int64_t plans_cached = 0;
  int64_t plan_hits = 0;
  int64_t plan_misses = 0;
  int64_t plan_evictions = 0;
  int64_t plan_handles = 0;
  int64_t weights_versions = 0;
  int64_t weights_bytes = 0;
  int64_t staging_bytes = 0;
  int64_t queued = 0;
  int64_t in_flight = 0;  // admitted and not yet completed, queued included
};

class Engine {
 public:
  // Makes a device that calls `wake` after each completion.
  using DeviceFactory =
      absl::AnyInvocable<absl::StatusOr<std::unique_ptr<Device>>(std::function<void()> wake)>;

  // Makes the device and starts the executor's thread.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(DeviceFactory make_device,
                                                        const EngineOptions& options);
  // Ends what is queued with UNAVAILABLE, waits for what the device has.
  ~Engine();

  WeightsRegistry& weights();
  const DeviceLimits& device_limits() const;
  const EngineOptions& options() const;

  absl::StatusOr<PreparedPlan> Prepare(std::string_view client, const SignatureRequest& request);
  absl::Status Release(std::string_view client, std::string_view handle);

  using Done = absl::AnyInvocable<void(absl::StatusOr<Executed>)>;
  // May build a plan and copies operands on the caller's thread, then returns;
  // `done` is called exactly once. The token cancels: before launch the request
  // ends with CANCELLED, later its result is dropped and it ends the same.
  ExecutionId Execute(const ExecuteRequest& request, Done done);
  void Cancel(ExecutionId id);

  EngineStats Stats() const;

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tetrad
