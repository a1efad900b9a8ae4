// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Engine: the product without a network. Owns a device, the weights, the plan
// cache and the executor, and is all that the server includes.
//
// It is a step function too: Step() moves requests, Housekeep() ends leases
// and returns memory, the clock is given. Create() adds the threads that call
// them (engine_threads.h); without threads a test decides what happens when.
//
// Thread-safe. Every entry point takes the client's identity. Nothing blocks
// on the device except where said; Execute() answers through a callback, once,
// from the thread of Step() or (for a refusal) from the caller's. Lack of host
// memory is RESOURCE_EXHAUSTED, like lack of any other.
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

#include "engine/block_operands.h"
#include "engine/client_blocks.h"
#include "engine/device.h"
#include "engine/executed.h"
#include "engine/execution_slots.h"
#include "engine/executor.h"
#include "engine/inline_operands.h"
#include "engine/leases.h"
#include "engine/plan.h"
#include "engine/pool.h"
#include "engine/signature_request.h"
#include "engine/support/instant.h"
#include "engine/weights.h"

namespace tetrad {

struct EngineOptions {
  int64_t plan_capacity = 512;          // cached plans, at least 1
  int64_t plan_host_bytes = 1ll << 30;  // host memory of cached plans
  int64_t max_plan_handles = 65536;
  int64_t max_inline_bytes = 256ll << 20;  // operands of a request plus its reply
  int64_t staging_bytes = 4ll << 30;       // device memory for inline operands, all plans
  int64_t queue_depth = 1024;              // launches admitted and not yet on the device
  int64_t pool_chunk_bytes = 32ll << 20;   // what unexported memory is carved out of; at least 1
  std::string allocation_log;              // records pool events to this new file; empty: does not
  // A device that completes nothing for so long, beyond Executor::kOverrun times
  // what the launch at its head is predicted to take, is lost.
  absl::Duration launch_timeout = absl::Minutes(10);
  // How long the thread of Step() spins for more to do before it sleeps. Takes a
  // processor while there is traffic, and 10 µs off each launch.
  absl::Duration spin = absl::ZeroDuration();
  LeaseLimits leases;
  WeightsRegistry::Limits weights;
  SignatureLimits signatures;
  // Called once, from a thread of the engine, when the device is lost. By then
  // every request under way has ended, with UNAVAILABLE.
  std::function<void(const absl::Status&)> on_device_lost;
};

// A client's hold on blocks and plan handles.
struct LeaseInfo {
  std::string lease;        // names it in later calls
  absl::Duration grace;     // how long it outlives its attachment
  bool resumed = false;     // it existed before
  uint64_t attachment = 0;  // of the lease; a higher number is newer
};

struct PreparedPlan {
  std::string handle;
  std::shared_ptr<const Plan> plan;
  std::string weights;  // name@version
  bool cached = false;
};

struct ExecuteRequest {
  std::string client;  // identity
  std::string plan;    // handle, or empty and `signature` decides
  const SignatureRequest* signature = nullptr;
  std::string weights;                    // with a handle: overrides what it was prepared with
  InlineOperands operands;                // what it names must stay valid until Execute() returns
  const BlockOperands* blocks = nullptr;  // activations and output: there, not inline
  // Asked, if it is there, once the plan is known and before memory is taken, with
  // the bytes of the output to copy out; an error refuses the request.
  std::function<absl::Status(int64_t output_bytes)> reserve;
  Instant deadline = kNever;  // of the engine's clock
  Priority priority = Priority::kNormal;
  Flow flow;  // whose share of the device's time it takes; id 0: the client's
};

struct EngineStats {
  MemoryUse memory;
  ExecutionUse execution;
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
  int64_t block_bytes = 0;  // of clients' blocks, freed ones still in use included
  int64_t reclaimable = 0;  // objects let go of whose memory is not back yet
  std::array<int64_t, kLaunchOutcomes> outcomes{};  // launches ended, by LaunchOutcome
};

class EngineThreads;

class Engine {
 public:
  // Makes a device that calls `wake` after each completion.
  using DeviceFactory =
      absl::AnyInvocable<absl::StatusOr<std::unique_ptr<Device>>(std::function<void()> wake)>;
  // What drives an engine.
  struct Drive {
    Clock clock;
    std::function<void()> wake_step;       // there is something to do for Step()
    std::function<void()> wake_housekeep;  // and for Housekeep()
    // Execute() hands the device what it should have, on the caller's thread.
    bool launch_in_execute = false;
    // Step() is due at least so often, so that Execute() seldom has to wake it.
    int64_t step_interval_ns = kNever;
  };

  // Makes the device, and starts the threads that drive the engine by the
  // steady clock.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(DeviceFactory make_device,
                                                        const EngineOptions& options);
  // Driven by the caller.
  static absl::StatusOr<std::unique_ptr<Engine>> CreateStepped(DeviceFactory make_device,
                                                               const EngineOptions& options,
                                                               Drive drive);
  // Ends what is queued with UNAVAILABLE, waits for what the device has. A
  // stepped engine must be idle.
  ~Engine();

  // Each does what can be done now and returns when it is due again, kNever if
  // something must happen first. Step() is for one thread at a time.
  Instant Step();
  Instant Housekeep();
  // Refuses new requests; the next Step() ends those that wait.
  void Close();
  bool idle() const;  // no request under way

  WeightsRegistry& weights();
  const DeviceLimits& device_limits() const;
  const EngineOptions& options() const;

  // A lease, or with `resume` one that has not ended (ABORTED if it has), whose
  // newest attachment this is then. Detach() of the newest one starts the grace
  // time, after which the lease's blocks and plan handles are freed; EndLease()
  // frees them at once.
  absl::StatusOr<LeaseInfo> Attach(std::string_view client, std::string_view resume);
  void Detach(const LeaseInfo& attachment);
  absl::Status EndLease(std::string_view client, std::string_view lease);
  // For an operator: anybody's. Whose it was.
  absl::StatusOr<std::string> EndLease(std::string_view lease);
  // Whether it is there, and the client's.
  absl::Status CheckLease(std::string_view client, std::string_view lease) const;

  // Zeroed memory of the lease. RESOURCE_EXHAUSTED names the limit.
  absl::StatusOr<BlockInfo> Allocate(std::string_view client, std::string_view lease,
                                     int64_t bytes);
  absl::StatusOr<BlockInfo> FindBlock(std::string_view client, std::string_view block) const;
  absl::Status Write(std::string_view client, std::string_view block, int64_t offset,
                     std::span<const std::byte> data);
  absl::Status Read(std::string_view client, std::string_view block, int64_t offset,
                    std::span<std::byte> out) const;
  // The block's last write with a key. It may outlive the block, and says nothing
  // about the block's memory then.
  absl::StatusOr<std::shared_ptr<KeyedWrite>> KeyedWriteOf(std::string_view client,
                                                           std::string_view block) const;
  // No later request can name the block; its memory is reused after the last
  // launch that does.
  absl::Status Free(std::string_view client, std::string_view block);
  // Blocks of the lease, oldest first.
  absl::StatusOr<std::vector<BlockInfo>> ListBlocks(std::string_view client,
                                                    std::string_view lease) const;

  // The handle belongs to `lease`; without one it ends when it was not used for
  // leases.handle_idle.
  absl::StatusOr<PreparedPlan> Prepare(std::string_view client, const SignatureRequest& request,
                                       std::string_view lease = {});
  absl::Status Release(std::string_view client, std::string_view handle);

  // Whether Execute() with this handle would have to build its plan, which takes
  // long, and to prove it on a GPU. False for a handle that is not the client's.
  bool MustBuild(std::string_view client, std::string_view handle);

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
  std::unique_ptr<EngineThreads> threads_;  // null if stepped; stops before the rest goes
};

}  // namespace tetrad
