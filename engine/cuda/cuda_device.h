// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// CudaDevice: one GPU. Memory is mapped from fd-backed allocations of the
// driver, launches are replays of CUDA graphs, and one thread watches the words
// that the GPU writes when a launch is over.
//
// All that can allocate, synchronise or fail happens in MakeReady(), Bind() and
// Rebind(): tables of the plan, the replay proof, scratch, tensor maps, the graph and
// its parameters. Launch() is one call of the driver.
//
// A device of capability 9.0 packs weights (PackWeights(), which waits) and serves packed
// ones by the Hopper kernel; the portable one serves all else.
//
// The process-wide primary context is used, so that other libraries in the
// process share it. After an error that ends the context health() says so, and
// the process has to end: no context can be made anew in it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/device.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/launch.h"

namespace tetrad::cuda {

struct DeviceInfo {
  std::string uuid;  // as nvidia-smi prints it: GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx
  std::string name;
  int capability = 0;  // 90 for 9.0
};

// The devices of this machine that have kernels in this build, in the driver's order.
absl::StatusOr<std::vector<DeviceInfo>> ListDevices(const CudaDriver& driver);

class CudaDevice final : public Device {
 public:
  struct Options {
    std::string uuid;          // empty: the first device
    int64_t memory_bytes = 0;  // 0: what is free at the start, less a reserve
    int32_t lanes = 4;         // the first has high priority
    int32_t max_in_flight = 64;
    int64_t graph_bytes = 256ll << 20;  // of instantiated graphs
    int64_t plan_bytes = 4ll << 30;     // of plans' tables, scratch of bindings and proofs
    int32_t copy_slots = 16;            // copies under way at a time; 8 MiB of host memory each
    bool measure_rates = true;          // takes a fraction of a second
    bool portable_only = false;         // no kernel of one architecture, no packed weights
  };
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Create(const CudaDriver& driver,
                                                            const Options& options,
                                                            std::function<void()> wake);
  // Waits for what is under way, without a limit: memory must not be given back
  // while a kernel uses it, and a kernel that hangs cannot be ended. Of a lost
  // device nothing is waited for and nothing given back but the context, where the
  // driver may wait for a kernel that still runs. So whoever can come upon one that
  // hangs ends the process without this: the daemon leaves a lost device
  // (`launch_timeout` makes a hang one) by _exit() with status 70, and an orderly
  // shutdown that hangs here is ended the same way by its watchdog.
  ~CudaDevice() override;

  const DeviceLimits& limits() const override;
  MemoryUse memory_use() const override;
  ExecutionUse execution_use() const override;
  absl::Status health() const override;
  absl::StatusOr<Allocation> Allocate(int64_t bytes) override;
  absl::Status Free(AllocationId id) override;
  absl::Status Seal(AllocationId id) override;
  absl::StatusOr<UniqueFd> Export(AllocationId id) override;
  absl::StatusOr<Allocation> Import(UniqueFd fd, const AllocationIdentity& identity, int64_t bytes,
                                    bool writable) override;
  absl::Status Write(AllocationId id, int64_t offset, std::span<const std::byte> data) override;
  absl::Status Fill(AllocationId id, int64_t offset, int64_t bytes, FillSource source) override;
  absl::Status Read(AllocationId id, int64_t offset, std::span<std::byte> data) const override;
  absl::Status Clear(AllocationId id, int64_t offset, int64_t bytes) override;
  absl::Status PackWeights(const WeightsToPack& weights) override;
  absl::Status MakeReady(const std::shared_ptr<const Plan>& plan, const BlockRef& b,
                         const BlockRef& b_scales) override;
  absl::StatusOr<BindingId> Bind(std::shared_ptr<const Plan> plan,
                                 const OperandBlocks& operands) override;
  absl::Status Rebind(BindingId id, const OperandBlocks& operands) override;
  absl::Status Unbind(BindingId id) override;
  absl::Status Launch(LaneId lane, BindingId binding, uint64_t ticket) override;
  size_t Poll(std::span<Completion> out) override;

  // For benchmarks: what Launch() and Poll() stand on, to be used while nothing
  // else uses the binding. A launch made on it directly is to be counted by
  // whoever makes it: `launches` says how many there were before.
  struct BareLaunch {
    CUgraphExec exec = nullptr;
    CUstream stream = nullptr;
    const CompletionRecord* records = nullptr;
    uint32_t depth = 1;
    uint64_t launches = 0;
  };
  absl::StatusOr<BareLaunch> BeginBareLaunches(BindingId id);
  void EndBareLaunches(BindingId id, uint64_t launches);
  // Gives the binding's kernels to a stream, which may be capturing, without their graph; no
  // completion is given. The first may overlap the end of the kernel before it in the stream. While
  // nothing else uses the binding, either.
  absl::Status LaunchOn(CUstream stream, BindingId id);
  // The same on a stream of the device's, and waits until they are done.
  absl::Status LaunchEagerly(BindingId id);
  const CudaDriver& driver() const;
  // Makes the context current in the calling thread, for direct use of the driver.
  absl::Status Enter() const;

 private:
  class Impl;
  explicit CudaDevice(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tetrad::cuda
