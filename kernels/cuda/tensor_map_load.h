// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the test of tensor maps and its kernel agree on. The kernel loads one
// box into shared memory and copies shared memory out as it then is:
//
//   out[0, window_bytes)   shared memory from the box on; kUntouched where the
//                          copy engine wrote nothing
//   *timed_out             1 if the box's bytes did not all arrive in a second
#pragma once

#include <cstdint>

namespace tetrad::cuda {

inline constexpr char kTensorMapLoadEntry[] = "tetrad_tensor_map_load";
inline constexpr uint32_t kTensorMapLoadThreads = 128;
inline constexpr uint32_t kTensorMapLoadWindow = 40 << 10;  // bytes; the most of window_bytes
// Patterns of swizzle repeat every 1024 bytes of shared memory.
inline constexpr uint32_t kTensorMapLoadAlignment = 1024;
// Window, alignment and a barrier.
inline constexpr uint32_t kTensorMapLoadShared =
    kTensorMapLoadWindow + kTensorMapLoadAlignment + 16;
static_assert(kTensorMapLoadShared <= 48 << 10, "what a kernel gets without asking");
inline constexpr uint8_t kUntouched = 0xA5;

struct TensorMapLoad {
  uint8_t* out = nullptr;
  uint32_t* timed_out = nullptr;
  int32_t at[5] = {};  // of the box's first element; at[0] by 16 bytes: tensor_map.h
  uint32_t rank = 1;
  uint32_t box_bytes = 0;
  uint32_t window_bytes = 0;
};
static_assert(sizeof(TensorMapLoad) == 48);

}  // namespace tetrad::cuda
