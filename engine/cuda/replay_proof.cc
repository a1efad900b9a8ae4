// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/replay_proof.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "engine/cuda/ranges.h"
#include "engine/support/error_detail.h"
#include "kernels/cuda/proof.h"

namespace tetrad::cuda {
namespace {

constexpr uint32_t kRounds = 2;
constexpr uint32_t kGrid = 512;  // of filling and comparing; any would do
constexpr uint8_t kUntouched = 0xA5;

ProofFill ActivationFill(ActivationType type) {
  switch (type) {
    case ActivationType::kNvfp4:
      return ProofFill::kCodes;
    case ActivationType::kFp16:
      return ProofFill::kFp16;
    case ActivationType::kBf16:
      return ProofFill::kBf16;
  }
  return ProofFill::kCodes;
}

// Legal live counts or offsets: all there is room for at first, then fewer, with
// every third group empty.
std::vector<int32_t> LiveValues(const Signature& signature, uint32_t round) {
  const int64_t groups = static_cast<int64_t>(signature.groups.size());
  const int64_t capacity = signature.capacity_rows;
  const auto share = [&](int64_t g, int64_t rows) {
    if (round == 0) return rows;
    return g % 3 == 0 ? 0 : rows * (g % 7 + 1) / 8;
  };
  std::vector<int32_t> values;
  if (signature.m_source == MSource::kCounts) {
    for (int64_t g = 0; g < groups; ++g) values.push_back(static_cast<int32_t>(share(g, capacity)));
  } else {
    int64_t end = 0;
    values.push_back(0);
    for (int64_t g = 0; g < groups; ++g) {
      end += share(g, capacity * (g + 1) / groups - capacity * g / groups);
      values.push_back(static_cast<int32_t>(end));
    }
  }
  return values;
}

}  // namespace

struct ReplayProof::Scratch {
  OwnBlock a, a_scales, alpha, row_scale, m_values;
  OwnBlock direct, replayed;  // the two outputs
  OwnBlock state;             // of the direct launch
  OwnBlock launch;            // what the plan's launches need; both, one after the other
  OwnBlock different;
};

absl::StatusOr<std::unique_ptr<ReplayProof>> ReplayProof::Create(CudaContext& context,
                                                                 const KernelLibrary& library,
                                                                 OwnMemory& memory,
                                                                 LaunchGraphs& graphs) {
  std::unique_ptr<ReplayProof> proof(new ReplayProof(context, library, memory, graphs));
  TETRAD_RETURN_IF_ERROR(
      TETRAD_CUDA(context, StreamCreateWithPriority, &proof->stream_, CU_STREAM_NON_BLOCKING, 0));
  return proof;
}

ReplayProof::~ReplayProof() {
  if (stream_ == nullptr || !context_.Enter().ok()) return;
  context_.Release(context_.driver().StreamDestroy(stream_), "cuStreamDestroy");
}

absl::Status ReplayProof::Allocate(const Plan& plan, const PlanOnDevice& on_device,
                                   Scratch& scratch) {
  const OperandLayout& layout = plan.layout;
  const int64_t groups = static_cast<int64_t>(plan.signature.groups.size());
  const struct {
    OwnBlock& block;
    int64_t bytes;
  } blocks[] = {{scratch.a, layout.a_bytes},
                {scratch.a_scales, layout.a_scale_bytes},
                {scratch.alpha, groups * 4},
                {scratch.row_scale, plan.signature.row_scale ? layout.rows * 4 : 0},
                {scratch.m_values, layout.m_values * 4},
                {scratch.direct, layout.c_bytes},
                {scratch.replayed, layout.c_bytes},
                {scratch.state, static_cast<int64_t>(sizeof(LaunchState))},
                {scratch.launch, on_device.scratch_bytes()},
                {scratch.different, static_cast<int64_t>(sizeof(uint64_t))}};
  for (const auto& [block, bytes] : blocks) {
    auto made = memory_.Allocate(bytes);
    if (!made.ok()) {
      return WithPrefix("plan_device_bytes: operands to prove this plan with: ", made.status());
    }
    block = *std::move(made);
  }
  return absl::OkStatus();
}

absl::Status ReplayProof::FillOne(const OwnBlock& block, uint32_t seed, uint32_t kind) {
  if (block.bytes() == 0) return absl::OkStatus();
  return LaunchKernel(context_, library_.proof_fill(), kGrid, stream_, block.address(),
                      block.bytes(), seed, kind);
}

absl::Status ReplayProof::FillOperands(const Plan& plan, const Scratch& scratch, uint32_t round) {
  const Signature& signature = plan.signature;
  const struct {
    const OwnBlock& block;
    ProofFill fill;
  } blocks[] = {{scratch.a, ActivationFill(signature.types.a_type)},
                {scratch.a_scales, ProofFill::kScales},
                {scratch.alpha, ProofFill::kFp32},
                {scratch.row_scale, ProofFill::kFp32}};
  uint32_t seed = round << 8;
  for (const auto& [block, fill] : blocks) {
    TETRAD_RETURN_IF_ERROR(FillOne(block, ++seed, static_cast<uint32_t>(fill)));
  }
  if (signature.device_m()) {
    const std::vector<int32_t> values = LiveValues(signature, round);
    TETRAD_RETURN_IF_ERROR(memory_.Write(scratch.m_values, 0, std::as_bytes(std::span(values))));
  }
  for (const OwnBlock* output : {&scratch.direct, &scratch.replayed}) {
    if (output->bytes() == 0) continue;
    TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(context_, MemsetD8Async, output->address(), kUntouched,
                                       static_cast<size_t>(output->bytes()), stream_));
  }
  return absl::OkStatus();
}

absl::Status ReplayProof::Round(const Plan& plan, const Scratch& scratch, GemmLaunch& direct,
                                LaunchGraph& graph, uint32_t round) {
  TETRAD_RETURN_IF_ERROR(FillOperands(plan, scratch, round));
  TETRAD_RETURN_IF_ERROR(LaunchOn(context_, stream_, direct));
  {
    const std::lock_guard lock(graph.launching);
    TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(context_, GraphLaunch, graph.exec, stream_));
    ++graph.launches;
  }
  if (scratch.direct.bytes() > 0) {
    TETRAD_RETURN_IF_ERROR(LaunchKernel(context_, library_.proof_compare(), kGrid, stream_,
                                        scratch.direct.address(), scratch.replayed.address(),
                                        scratch.direct.bytes(), scratch.different.address()));
  }
  TETRAD_RETURN_IF_ERROR(context_.Synchronize(stream_));
  const CompletionRecord& record = graph.records[(graph.launches - 1) % graphs_.depth()];
  if (record.sequence != graph.launches || record.error_word != 0) {
    return ReasonError(Reason::kReplayProofFailed,
                       absl::StrCat("replay proof: launch ", graph.launches, " completed as ",
                                    record.sequence, " with error word ", record.error_word));
  }
  uint64_t different = 0;
  TETRAD_RETURN_IF_ERROR(
      memory_.Read(scratch.different, 0, std::as_writable_bytes(std::span(&different, 1))));
  if (different == 0) return absl::OkStatus();
  return ReasonError(Reason::kReplayProofFailed,
                     absl::StrCat("replay proof: ", different, " of ", scratch.direct.bytes(),
                                  " bytes of a replay differ from those of a direct "
                                  "launch of ",
                                  plan.kernel));
}

absl::Status ReplayProof::Prove(const Plan& plan, const PlanOnDevice& on_device, const uint8_t* b,
                                const uint8_t* b_scales) {
  TETRAD_CUDA_RANGE("replay proof");
  TETRAD_RETURN_IF_ERROR(context_.Enter());
  Scratch scratch;
  TETRAD_RETURN_IF_ERROR(Allocate(plan, on_device, scratch));
  const auto address = [](const OwnBlock& block) {
    return reinterpret_cast<std::byte*>(block.address());
  };
  DeviceMProblem stack;
  stack.a = reinterpret_cast<const uint8_t*>(address(scratch.a));
  stack.a_scales = reinterpret_cast<const uint8_t*>(address(scratch.a_scales));
  stack.b = b;
  stack.b_scales = b_scales;
  stack.alpha = reinterpret_cast<const float*>(address(scratch.alpha));
  stack.row_scale = reinterpret_cast<const float*>(address(scratch.row_scale));
  stack.m_values = reinterpret_cast<const int32_t*>(address(scratch.m_values));
  const CUdeviceptr launch = scratch.launch.address();
  stack.c = address(scratch.replayed);
  TETRAD_ASSIGN_OR_RETURN(const GemmLaunch replayed, on_device.LaunchOf(context_, stack, launch));
  stack.c = address(scratch.direct);
  TETRAD_ASSIGN_OR_RETURN(GemmLaunch direct, on_device.LaunchOf(context_, stack, launch));
  direct.SetState(reinterpret_cast<LaunchState*>(address(scratch.state)));
  TETRAD_ASSIGN_OR_RETURN(std::unique_ptr<LaunchGraph> graph, graphs_.Take(on_device.kind()));
  absl::Cleanup give_back = [&] {
    // Nothing may still run on what is given back.
    if (context_.health().ok()) context_.Synchronize(stream_).IgnoreError();
    graphs_.Return(std::move(graph));
  };
  TETRAD_RETURN_IF_ERROR(graphs_.SetLaunch(*graph, replayed));
  for (uint32_t round = 0; round < kRounds; ++round) {
    TETRAD_RETURN_IF_ERROR(Round(plan, scratch, direct, *graph, round));
  }
  return absl::OkStatus();
}

}  // namespace tetrad::cuda
