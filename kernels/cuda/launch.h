// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What host and device code of a CUDA launch agree on, as plain data.
//
// A launch is one or more kernels that compute, followed by the completion kernel.
// Each gets its arguments by value: the portable GEMM a LaunchArguments, those of
// Hopper what sm90/gemm.h and sm90/prepare.h say. What only the plan decides (groups,
// tiles) lies in tables in device memory that never change; what the binding decides
// are addresses (and tensor maps of them), so giving a binding other memory is to set
// arguments. The completion kernel gets a CompletionArguments.
//
//   first kernel       first CTA: state.begun_ns = now
//   GEMM kernel        any CTA: state.error_word |= bits
//   completion kernel  ++state.launches; record[(launches - 1) % depth] = {error, time, launches};
//                      error_word = 0
//
// The sequence is written last, with release at system scope: the host that
// sees it sees the rest. Launches of one state never overlap (the driver runs
// launches of one graph exec one after the other).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/problem.h"

namespace tetrad::cuda {

// One group with host M; offsets in bytes from the operand's base address.
struct GroupEntry {
  int64_t a = 0;
  int64_t a_scales = 0;
  int64_t b = 0;
  int64_t b_scales = 0;
  int64_t c = 0;
  int64_t row = 0;       // index of the group's first row in row_scale
  int64_t c_stride = 0;  // elements
  int32_t m = 0;
  int32_t n = 0;
  int32_t k = 0;
  int32_t padding = 0;
};
static_assert(sizeof(GroupEntry) == 72 && std::is_trivially_copyable_v<GroupEntry>);

// Device memory; one a graph exec.
struct LaunchState {
  uint64_t begun_ns = 0;  // of the device's global timer
  uint64_t launches = 0;  // completed
  uint32_t error_word = 0;
  uint32_t padding[11] = {};
};
static_assert(sizeof(LaunchState) == 64);

// Page-locked host memory; `depth` of them a graph exec.
struct CompletionRecord {
  uint64_t sequence = 0;  // number of the launch, from 1; written last
  uint64_t device_ns = 0;
  uint32_t error_word = 0;
  uint32_t padding[3] = {};
};
static_assert(sizeof(CompletionRecord) == 32 && offsetof(CompletionRecord, sequence) == 0);

// Of the portable GEMM.
struct LaunchArguments {
  // Base addresses; null where the signature has no such operand, or no bytes of it.
  const uint8_t* a = nullptr;
  const uint8_t* a_scales = nullptr;
  const uint8_t* b = nullptr;
  const uint8_t* b_scales = nullptr;
  std::byte* c = nullptr;
  const float* alpha = nullptr;  // [groups]
  const float* row_scale = nullptr;
  const int32_t* m_values = nullptr;

  // Host M: tables of the plan. cta_begin has one entry more than the grid has
  // CTAs; CTA i computes tiles [cta_begin[i], cta_begin[i + 1]).
  const GroupEntry* groups = nullptr;
  const Tile* tiles = nullptr;
  const int32_t* cta_begin = nullptr;

  LaunchState* state = nullptr;

  // Device-side M; layouts as DeviceMProblem says.
  int64_t capacity_rows = 0;
  int64_t c_stride = 0;
  int32_t group_count = 0;
  int32_t n = 0;
  int32_t k = 0;
  ProblemTypes types;
  MSource m_source = MSource::kHost;
  uint8_t padding = 0;
};
static_assert(std::is_trivially_copyable_v<LaunchArguments> && sizeof(LaunchArguments) == 136);
// What every architecture takes by value.
static_assert(sizeof(LaunchArguments) <= 4096);

struct CompletionArguments {
  LaunchState* state = nullptr;
  CompletionRecord* records = nullptr;  // device address of host memory
  uint32_t depth = 1;
  uint32_t padding = 0;
};
static_assert(sizeof(CompletionArguments) == 24);

inline constexpr char kCompletionEntry[] = "tetrad_completion";

}  // namespace tetrad::cuda
