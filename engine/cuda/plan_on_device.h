// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// PlanOnDevice: a plan's part of a launch: its tables in device memory and which kernels compute
// it. What a binding adds are the addresses of its operands, and scratch where the plan needs some.
//
// Immutable once placed, so that threads can share it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"

#include "engine/cuda/gemm_launch.h"
#include "engine/cuda/kernel_library.h"
#include "engine/cuda/own_memory.h"
#include "engine/plan.h"

namespace tetrad::cuda {

class PlanOnDevice {
 public:
  static absl::StatusOr<std::shared_ptr<const PlanOnDevice>> Place(const Plan& plan,
                                                                   const KernelLibrary& library,
                                                                   OwnMemory& memory,
                                                                   int32_t multiprocessors);

  GraphKind kind() const { return kind_; }
  // That a launch has.
  int64_t tensor_maps() const {
    return instance_ == nullptr || token_rows_ == 0
               ? 0
               : std::ranges::count_if(instance_->widths, [](int32_t w) { return w > 0; });
  }
  int64_t table_bytes() const { return tables_.bytes(); }
  // Device memory that one launch at a time may use, beside its operands.
  int64_t scratch_bytes() const { return scratch_bytes_; }

  // The launch on operands of which `stack` has the addresses, with scratch_bytes() at `scratch`;
  // whose launch state it is stays open. Allocates nothing.
  absl::StatusOr<GemmLaunch> LaunchOf(CudaContext& context, const DeviceMProblem& stack,
                                      CUdeviceptr scratch) const;

 private:
  absl::Status PlacePortable(const Plan& plan, OwnMemory& memory);
  absl::Status PlaceHopper(const Plan& plan, const KernelLibrary& library, OwnMemory& memory);
  GemmLaunch PortableLaunch(const DeviceMProblem& stack) const;
  absl::StatusOr<GemmLaunch> HopperLaunch(CudaContext& context, const DeviceMProblem& stack,
                                          CUdeviceptr scratch) const;

  GraphKind kind_ = GraphKind::kPortableNvfp4;
  int32_t multiprocessors_ = 1;
  OwnBlock tables_;
  int64_t scratch_bytes_ = 0;
  const Kernel* gemm_ = nullptr;
  uint32_t grid_ = 1;
  LaunchArguments portable_;

  // Of the Hopper kernel.
  const Kernel* snapshot_ = nullptr;
  int32_t value_count_ = 0;
  int64_t values_at_ = 0;  // in the scratch
  const Kernel* prepare_ = nullptr;
  uint32_t prepare_grid_ = 1;
  sm90::PrepareArguments prepare_arguments_;
  sm90::GemmArguments hopper_;
  const sm90::Instance* instance_ = nullptr;
  int64_t token_rows_ = 0;
  int64_t lists_at_ = 0;  // in the scratch
};

}  // namespace tetrad::cuda
