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

#include <array>
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
#include "engine/leases.h"
#include "engine/plan.h"
#include "engine/pool.h"
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
  int64_t pool_chunk_bytes = 32ll << 20;   // what unexported memory is carved out of
  std::string allocation_log;              // records pool events to this new file; empty: does not
  // A launch whose completion does not come for so long is taken for a lost device.
  absl::Duration launch_timeout = absl::Minutes(10);
  LeaseLimits leases;
  WeightsRegistry::Limits weights;
  SignatureLimits signatures;
  // Called once, from a thread of the engine, when the device is lost. By then
  // every request under way has ended, with UNAVAILABLE.
  std::function<void(const absl::Status&)> on_device_lost;
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

// A client's hold on blocks and plan handles.
struct LeaseInfo {
  std::string lease;     // names it in later calls
  absl::Duration grace;  // how long it outlives its attachment
  bool resumed = false;  // it existed before
};

// A range of device memory that a client may write, read and name in requests.
struct BlockInfo {
  std::string block;
  std::string lease;
  int64_t bytes = 0;
};

// A range of a block, in bytes; `offset` is a multiple of 16.
struct BlockRange {
  std::string_view block;
  int64_t offset = 0;
  int64_t bytes = 0;
};

// Operands that lie in blocks, in the layout plan.layout: like the inline ones,
// but in the separate form every group starts at a multiple of
// kStagingAlignment. The output is left there: gaps and rows that are not live
// keep what was in them.
struct BlockOperands {
  BlockRange activations;
  BlockRange activation_scales;  // empty name: the signature has none
  BlockRange output;
  BlockRange row_scale;  // empty name: inline, or none
  BlockRange m_values;   // empty name: inline, or none
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
  std::string weights;                    // with a handle: overrides what it was prepared with
  InlineOperands operands;                // what it names must stay valid until Execute() returns
  const BlockOperands* blocks = nullptr;  // activations and output: there, not inline
  absl::Time deadline = absl::InfiniteFuture();
  Priority priority = Priority::kNormal;
};

// A finished launch and its output, still in device memory. Must be gone before
// the engine is.
class Executed {
 public:
  Executed(StagingLease staging, Timings timings);
  // Of the output to copy: 0 where it was asked for in a block.
  int64_t output_bytes() const;
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
  Pool::Stats pool;
  Leases::Stats leases;
  int64_t blocks = 0;
  int64_t block_bytes = 0;    // of clients' blocks, freed ones still in use included
  int64_t reclaim_bytes = 0;  // freed and not yet returned to the pool
  std::array<int64_t, kLaunchOutcomes> outcomes{};  // launches ended, by LaunchOutcome
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

  // A lease, or with `resume` one that is in its grace time (ABORTED if it is
  // gone, FAILED_PRECONDITION if it is attached). Detach() starts the grace time, after which its
  // blocks and plan handles are freed; EndLease() does so at once.
  absl::StatusOr<LeaseInfo> Attach(std::string_view client, std::string_view resume);
  void Detach(std::string_view lease);
  absl::Status EndLease(std::string_view client, std::string_view lease);

  // Zeroed memory of the lease. RESOURCE_EXHAUSTED names the limit.
  absl::StatusOr<BlockInfo> Allocate(std::string_view client, std::string_view lease,
                                     int64_t bytes);
  absl::StatusOr<BlockInfo> FindBlock(std::string_view client, std::string_view block) const;
  absl::Status Write(std::string_view client, std::string_view block, int64_t offset,
                     std::span<const std::byte> data);
  absl::Status Read(std::string_view client, std::string_view block, int64_t offset,
                    std::span<std::byte> out) const;
  // No later request can name the block; its memory is reused after the last
  // launch that does.
  absl::Status Free(std::string_view client, std::string_view block);
  // Blocks of the lease, oldest first.
  absl::StatusOr<std::vector<BlockInfo>> ListBlocks(std::string_view client,
                                                    std::string_view lease) const;

  // The handle belongs to `lease`; without one it ends when it was not used for
  // the grace time of handles.
  absl::StatusOr<PreparedPlan> Prepare(std::string_view client, const SignatureRequest& request,
                                       std::string_view lease = {});
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
