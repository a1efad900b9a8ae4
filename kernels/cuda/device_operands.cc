// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/device_operands.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace tetrad::cuda {
namespace {

constexpr int64_t kMargin = 64;  // of C; what sample.h keeps around it

}  // namespace

DeviceOperands::DeviceOperands(DirectDevice& device, const Operands& operands)
    : device_(device), operands_(operands) {
  if (operands.stack().groups != 0) {
    AddStacked();
  } else {
    AddSeparate();
  }
  for (const Region& region : regions_) {
    device_.Upload(region.device, {region.host, region.bytes});
  }
  const CUdeviceptr state = device_.Allocate(sizeof(LaunchState));
  device_.Fill(state, 0, sizeof(LaunchState));
  state_ = reinterpret_cast<LaunchState*>(state);
}

void DeviceOperands::Add(const void* host, int64_t bytes, bool output) {
  if (host == nullptr) return;
  auto* const begin = static_cast<std::byte*>(const_cast<void*>(host));
  const auto size = static_cast<size_t>(bytes);
  regions_.push_back({begin, size, device_.Allocate(size + 1), output});
}

void DeviceOperands::AddSeparate() {
  const ProblemTypes& types = operands_.types();
  const bool row_major = types.c_layout == OutputLayout::kRowMajor;
  for (const GroupProblem& group : operands_.groups()) {
    Add(group.a, ActivationBytes(types.a_type, group.m, group.k));
    Add(group.a_scales, ScalePlaneBytes(types.a_scale_layout, group.m, group.k));
    Add(group.b, CodeBytes(group.n, group.k));
    Add(group.b_scales, ScalePlaneBytes(types.b_scale_layout, group.n, group.k));
    Add(group.row_scale, int64_t{group.m} * 4);
    const int64_t elements = (row_major ? group.m : group.n) * group.c_stride;
    Add(static_cast<const std::byte*>(group.c) - kMargin,
        elements * OutputElementBytes(types.c_type) + 2 * kMargin, true);
  }
}

void DeviceOperands::AddStacked() {
  const ProblemTypes& types = operands_.types();
  const DeviceMProblem& stack = operands_.stack();
  int64_t rows = 0;
  int64_t scale_rows = 0;
  for (const GroupProblem& group : operands_.groups()) {
    rows += group.m;
    scale_rows +=
        types.a_scale_layout == ScaleLayout::kLinear ? group.m : RoundUp(group.m, kScaleTileRows);
  }
  const bool row_major = types.c_layout == OutputLayout::kRowMajor;
  Add(stack.a, ActivationBytes(types.a_type, rows, stack.k));
  Add(stack.a_scales, ScalePlaneBytes(types.a_scale_layout, scale_rows, stack.k));
  Add(stack.b, stack.groups * CodeBytes(stack.n, stack.k));
  Add(stack.b_scales, stack.groups * ScalePlaneBytes(types.b_scale_layout, stack.n, stack.k));
  Add(stack.row_scale, rows * 4);
  const int64_t elements = (row_major ? rows : stack.n) * stack.c_stride;
  Add(static_cast<const std::byte*>(stack.c) - kMargin,
      elements * OutputElementBytes(types.c_type) + 2 * kMargin, true);
}

CUdeviceptr DeviceOperands::Translate(const void* host) const {
  const auto* const at = static_cast<const std::byte*>(host);
  for (const Region& region : regions_) {
    if (at >= region.host && (at == region.host || at < region.host + region.bytes)) {
      return region.device + static_cast<CUdeviceptr>(at - region.host);
    }
  }
  // The end of a stack is the address of an empty last group.
  for (const Region& region : regions_) {
    if (at == region.host + region.bytes) return region.device + region.bytes;
  }
  std::fprintf(stderr, "an address that is none of the operands'\n");
  std::abort();
}

int64_t DeviceOperands::Offset(const void* host) const {
  return host == nullptr ? 0 : static_cast<int64_t>(Translate(host) - device_.arena());
}

template <class T>
const T* DeviceOperands::UploadTable(std::span<const T> table) {
  const CUdeviceptr to = device_.Allocate(table.size_bytes() + 1);
  device_.Upload(to, std::as_bytes(table));
  return reinterpret_cast<const T*>(to);
}

LaunchArguments DeviceOperands::Base() const {
  LaunchArguments arguments;
  arguments.state = state_;
  arguments.types = operands_.types();
  return arguments;
}

LaunchArguments DeviceOperands::HostM(std::span<const GroupProblem> groups,
                                      std::span<const Tile> tiles,
                                      std::span<const int32_t> cta_begin) {
  std::vector<GroupEntry> entries;
  std::vector<float> alphas;
  for (const GroupProblem& group : groups) {
    entries.push_back({.a = Offset(group.a),
                       .a_scales = Offset(group.a_scales),
                       .b = Offset(group.b),
                       .b_scales = Offset(group.b_scales),
                       .c = Offset(group.c),
                       .row = Offset(group.row_scale) / 4,
                       .c_stride = group.c_stride,
                       .m = group.m,
                       .n = group.n,
                       .k = group.k});
    alphas.push_back(group.alpha);
  }
  LaunchArguments arguments = Base();
  const auto arena = reinterpret_cast<const uint8_t*>(device_.arena());
  arguments.a = arena;
  if (operands_.types().a_type == ActivationType::kNvfp4) arguments.a_scales = arena;
  arguments.b = arena;
  arguments.b_scales = arena;
  arguments.c = reinterpret_cast<std::byte*>(device_.arena());
  if (!groups.empty() && groups[0].row_scale != nullptr) {
    arguments.row_scale = reinterpret_cast<const float*>(arena);
  }
  arguments.alpha = UploadTable<float>(alphas);
  arguments.groups = UploadTable<GroupEntry>(entries);
  arguments.tiles = UploadTable(tiles);
  arguments.cta_begin = UploadTable(cta_begin);
  arguments.group_count = static_cast<int32_t>(groups.size());
  return arguments;
}

LaunchArguments DeviceOperands::DeviceM(const DeviceMProblem& problem) {
  const auto groups = static_cast<size_t>(problem.groups);
  const auto device = [&](const void* host) {
    return host == nullptr ? nullptr : reinterpret_cast<const uint8_t*>(Translate(host));
  };
  LaunchArguments arguments = Base();
  arguments.a = device(problem.a);
  arguments.a_scales = device(problem.a_scales);
  arguments.b = device(problem.b);
  arguments.b_scales = device(problem.b_scales);
  arguments.c = reinterpret_cast<std::byte*>(Translate(problem.c));
  arguments.row_scale = reinterpret_cast<const float*>(device(problem.row_scale));
  if (problem.alpha != nullptr) arguments.alpha = UploadTable<float>({problem.alpha, groups});
  const size_t values = groups + (problem.m_source == MSource::kOffsets ? 1 : 0);
  arguments.m_values = UploadTable<int32_t>({problem.m_values, values});
  arguments.capacity_rows = problem.capacity_rows;
  arguments.c_stride = problem.c_stride;
  arguments.group_count = problem.groups;
  arguments.n = problem.n;
  arguments.k = problem.k;
  arguments.m_source = problem.m_source;
  return arguments;
}

LaunchState DeviceOperands::ReadState() {
  LaunchState state;
  device_.Download(std::as_writable_bytes(std::span(&state, 1)),
                   reinterpret_cast<CUdeviceptr>(state_));
  return state;
}

void DeviceOperands::UploadOutput() {
  for (const Region& region : regions_) {
    if (region.output) device_.Upload(region.device, {region.host, region.bytes});
  }
}

void DeviceOperands::DownloadOutput() {
  for (const Region& region : regions_) {
    if (region.output) device_.Download({region.host, region.bytes}, region.device);
  }
}

TileList CutTiles(std::span<const GroupProblem> groups, int32_t rows, int32_t columns,
                  int32_t ctas) {
  std::vector<Tile> all;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (int32_t column = 0; column < groups[g].n; column += columns) {
      for (int32_t row = 0; row < groups[g].m; row += rows) {
        all.push_back({static_cast<int32_t>(g), row, std::min(rows, groups[g].m - row), column,
                       std::min(columns, groups[g].n - column)});
      }
    }
  }
  TileList list;
  for (int32_t cta = 0; cta < ctas; ++cta) {
    list.cta_begin.push_back(static_cast<int32_t>(list.tiles.size()));
    for (size_t i = static_cast<size_t>(cta); i < all.size(); i += static_cast<size_t>(ctas)) {
      list.tiles.push_back(all[i]);
    }
  }
  list.cta_begin.push_back(static_cast<int32_t>(list.tiles.size()));
  return list;
}

}  // namespace tetrad::cuda
