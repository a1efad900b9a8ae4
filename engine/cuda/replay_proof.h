// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// ReplayProof: before a plan serves, its replays must compute what a direct
// launch of its kernel does, with operands and counts that change between
// replays.
//
// Activations and outputs are scratch of the device; the weights given are only
// read. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"

#include "engine/cuda/context.h"
#include "engine/cuda/kernel_library.h"
#include "engine/cuda/launch_graphs.h"
#include "engine/cuda/own_memory.h"
#include "engine/cuda/plan_on_device.h"
#include "engine/plan.h"

namespace tetrad::cuda {

class ReplayProof {
 public:
  static absl::StatusOr<std::unique_ptr<ReplayProof>> Create(CudaContext& context,
                                                             const KernelLibrary& library,
                                                             OwnMemory& memory,
                                                             LaunchGraphs& graphs);
  ~ReplayProof();
  ReplayProof(const ReplayProof&) = delete;

  // DATA_LOSS if a replay differs; RESOURCE_EXHAUSTED if there is no scratch.
  absl::Status Prove(const Plan& plan, const PlanOnDevice& on_device, const uint8_t* b,
                     const uint8_t* b_scales);

 private:
  struct Scratch;
  ReplayProof(CudaContext& context, const KernelLibrary& library, OwnMemory& memory,
              LaunchGraphs& graphs)
      : context_(context), library_(library), memory_(memory), graphs_(graphs) {}
  absl::Status Allocate(const Plan& plan, const PlanOnDevice& on_device, Scratch& scratch);
  absl::Status FillOperands(const Plan& plan, const Scratch& scratch, uint32_t round);
  absl::Status FillOne(const OwnBlock& block, uint32_t seed, uint32_t kind);
  absl::Status Round(const Plan& plan, const Scratch& scratch, GemmLaunch& direct,
                     LaunchGraph& graph, uint32_t round);

  CudaContext& context_;
  const KernelLibrary& library_;
  OwnMemory& memory_;
  LaunchGraphs& graphs_;
  CUstream stream_ = nullptr;
};

}  // namespace tetrad::cuda
