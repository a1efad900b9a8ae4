// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Device: memory and execution of one device; the one virtual interface of
// the program.
//
// Memory comes as fd-backed allocations, zeroed, each with an identity that is
// never reused. Work comes as bindings: a plan with concrete memory, made once
// by Bind() (which may allocate and fail) and launched many times by Launch()
// (which does neither). Launches of one lane run in order. Each launch ends in
// exactly one completion, fetched by Poll(); `wake` (given at construction) is
// called after a completion became available, from a device thread.
//
// Thread-safe, except that a caller must not free what a launch still uses;
// Free(), Unbind() and Rebind() of such an object are refused with
// FAILED_PRECONDITION. Ids are handles: a stale one is refused with ABORTED,
// never followed.
//
// After some faults (an illegal address and its kin) nothing of a device can
// be trusted. health() then says so for ever, `wake` is called, launches are
// refused with the same status, and completions may never come.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

#include "engine/plan.h"
#include "engine/support/unique_fd.h"

namespace tetrad {

enum class AllocationId : uint64_t { kNone = 0 };
enum class BindingId : uint64_t { kNone = 0 };
enum class LaneId : uint32_t {};

// Names an allocation across processes and restarts.
struct AllocationIdentity {
  std::array<uint8_t, 16> boot_id{};  // of the machine
  uint64_t generation = 0;            // of the process that created it
  std::array<uint8_t, 16> uuid{};
  bool operator==(const AllocationIdentity&) const = default;
};

struct Allocation {
  AllocationId id = AllocationId::kNone;
  AllocationIdentity identity;
  int64_t bytes = 0;
};

// A range of an allocation.
struct BlockRef {
  AllocationId allocation = AllocationId::kNone;
  int64_t offset = 0;
  int64_t bytes = 0;
  bool operator==(const BlockRef&) const = default;
};

// The memory of one binding. Sizes and alignment are checked against the plan.
// `a_scales`, `row_scale`, `m_values` are empty (bytes 0) where the signature
// has none. `alpha` holds one FP32 per group.
struct OperandBlocks {
  BlockRef a, a_scales, b, b_scales, c, alpha, row_scale, m_values;
  bool operator==(const OperandBlocks&) const = default;
};

// Weights that are brought into the form that the kernels of a device read
// (DeviceLimits::packs_weights), in the memory they were written to. Codes, from the start of
// `memory` on, and scales, from byte `scales` of it on (behind the codes, a multiple of 16), are
// the groups concatenated. From the start of `memory` on it gets PackedWeightBytes(groups), group
// after group, so it has room for either. `scratch` lies elsewhere, with least_scratch_bytes() of
// PackingBatches or more; what it holds afterwards is unspecified.
struct WeightsToPack {
  std::span<const GroupDims> groups;
  ScaleLayout scale_layout = ScaleLayout::kLinear;
  BlockRef memory;
  int64_t scales = 0;
  BlockRef scratch;
};

struct Completion {
  uint64_t ticket = 0;
  absl::StatusCode code =
      absl::StatusCode::kOk;  // kInternal: this launch failed, the device did not
  uint32_t error_word = 0;    // kError* bits of kernels/problem.h
  int64_t device_ns = 0;
};

struct MemoryUse {
  int64_t allocated_bytes = 0;
  int64_t limit_bytes = 0;
  int64_t allocations = 0;
};

// What a device itself holds to execute plans, beside the memory it was asked
// for, and what it did for it. All zero where launches need none of it.
struct ExecutionUse {
  int64_t plans = 0;        // with tables in device memory
  int64_t table_bytes = 0;  // of device memory, tables and scratch of plans
  int64_t tensor_maps = 0;  // encoded for live bindings
  int64_t graphs = 0;       // instantiated, idle ones included
  int64_t graph_bytes = 0;  // of device memory, as the driver's free memory fell
  int64_t graph_limit_bytes = 0;
  int64_t captures = 0;  // since the start: launches captured and graphs instantiated
  int64_t proofs = 0;    // since the start: replay proofs
};

// Writes the next bytes into a piece of memory. Must not throw: copies of earlier
// pieces may be under way.
using FillSource = absl::FunctionRef<absl::Status(std::span<std::byte>)>;

class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceLimits& limits() const = 0;
  virtual MemoryUse memory_use() const = 0;
  virtual ExecutionUse execution_use() const = 0;
  // INTERNAL after a fault that ends the use of the device. Cheap: asked at
  // every step of the executor.
  virtual absl::Status health() const = 0;

  // Zeroed memory of its own. RESOURCE_EXHAUSTED names the bytes wanted and left.
  virtual absl::StatusOr<Allocation> Allocate(int64_t bytes) = 0;
  virtual absl::Status Free(AllocationId id) = 0;
  // Makes the allocation read-only under this id and for later mappings.
  // FAILED_PRECONDITION while a copy writes it or it is bound as an output.
  virtual absl::Status Seal(AllocationId id) = 0;
  // A descriptor another process can import; the whole allocation.
  virtual absl::StatusOr<UniqueFd> Export(AllocationId id) = 0;
  // Maps an exported allocation under the identity and size it was created with
  // (not every descriptor tells its size); `writable` as far as its seals allow.
  virtual absl::StatusOr<Allocation> Import(UniqueFd fd, const AllocationIdentity& identity,
                                            int64_t bytes, bool writable) = 0;

  // Synchronous copies between host memory and an allocation.
  virtual absl::Status Write(AllocationId id, int64_t offset, std::span<const std::byte> data) = 0;
  // Like Write(), but `source` writes the bytes, in order and in pieces of the
  // device's choice, where the device takes them from: one copy less. What was
  // written before `source` failed is unspecified; its error is returned.
  virtual absl::Status Fill(AllocationId id, int64_t offset, int64_t bytes, FillSource source) = 0;
  virtual absl::Status Read(AllocationId id, int64_t offset, std::span<std::byte> data) const = 0;
  virtual absl::Status Clear(AllocationId id, int64_t offset, int64_t bytes) = 0;
  // Synchronous. FAILED_PRECONDITION of a device that does not pack weights. Blocks that cannot
  // be packed are refused by name and stay as they were; after an error of the device itself
  // what `memory` holds is unspecified: the weights are lost.
  virtual absl::Status PackWeights(const WeightsToPack& weights) = 0;

  // Does ahead of time what the first Bind() of a plan does once: its tables, the
  // proof that replays compute what a direct launch does (DATA_LOSS if not).
  // `b` and `b_scales` as in OperandBlocks; they are only read.
  virtual absl::Status MakeReady(const std::shared_ptr<const Plan>& plan, const BlockRef& b,
                                 const BlockRef& b_scales) = 0;
  virtual absl::StatusOr<BindingId> Bind(std::shared_ptr<const Plan> plan,
                                         const OperandBlocks& operands) = 0;
  // Gives a binding other memory; checks as Bind() does. On error the binding
  // is as before. Allocates nothing if it succeeds.
  virtual absl::Status Rebind(BindingId id, const OperandBlocks& operands) = 0;
  virtual absl::Status Unbind(BindingId id) = 0;

  // Starts the binding after earlier launches of `lane`. RESOURCE_EXHAUSTED
  // when max_in_flight launches are under way. Allocates nothing.
  virtual absl::Status Launch(LaneId lane, BindingId binding, uint64_t ticket) = 0;
  // Moves finished launches into `out`; returns how many.
  virtual size_t Poll(std::span<Completion> out) = 0;
};

}  // namespace tetrad
