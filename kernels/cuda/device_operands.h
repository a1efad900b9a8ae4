// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// DeviceOperands: a copy of Operands (kernels/sample.h) on a DirectDevice, and
// the launch arguments that name it, for tests and benchmarks. Groups are given
// with their host addresses and may be any part of the operands; alpha and M are
// the given group's. The outputs come back to where the host has its C, the
// pattern around them included.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/direct_device.h"
#include "kernels/cuda/launch.h"
#include "kernels/sample.h"

namespace tetrad::cuda {

class DeviceOperands {
 public:
  // Copies all operands, and C with its surroundings. Both must outlive this.
  DeviceOperands(DirectDevice& device, const Operands& operands);

  // `cta_begin` as LaunchArguments says. The tables are uploaded.
  LaunchArguments HostM(std::span<const GroupProblem> groups, std::span<const Tile> tiles,
                        std::span<const int32_t> cta_begin);
  // Host addresses but for m_values, which are uploaded.
  LaunchArguments DeviceM(const DeviceMProblem& problem);

  LaunchState* state() const { return state_; }
  LaunchState ReadState();

  void UploadOutput();    // what the host's C holds now
  void DownloadOutput();  // waits for the stream

 private:
  struct Region {
    std::byte* host;
    size_t bytes;
    CUdeviceptr device;
    bool output;
  };
  void Add(const void* host, int64_t bytes, bool output = false);
  void AddSeparate();
  void AddStacked();
  CUdeviceptr Translate(const void* host) const;
  int64_t Offset(const void* host) const;  // from the arena, 0 for null
  template <class T>
  const T* UploadTable(std::span<const T> table);
  LaunchArguments Base() const;

  DirectDevice& device_;
  const Operands& operands_;
  std::vector<Region> regions_;
  LaunchState* state_ = nullptr;
};

// Tiles of at most this size, CTA i getting tiles i, i + ctas, ...
struct TileList {
  std::vector<Tile> tiles;
  std::vector<int32_t> cta_begin;
};
TileList CutTiles(std::span<const GroupProblem> groups, int32_t rows, int32_t columns,
                  int32_t ctas);

}  // namespace tetrad::cuda
