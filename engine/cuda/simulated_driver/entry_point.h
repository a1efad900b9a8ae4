// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// EntryPoint (tests only): names the entry points of the CUDA driver, and says
// what a failure of each can be.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/driver.h"

namespace tetrad::cuda {

enum class EntryPoint : uint8_t {
#define TETRAD_CUDA_ENUMERATOR(member, symbol) k##member,
  TETRAD_CUDA_ENTRY_POINTS(TETRAD_CUDA_ENUMERATOR)
#undef TETRAD_CUDA_ENUMERATOR
      kCount
};
inline constexpr size_t kEntryPoints = static_cast<size_t>(EntryPoint::kCount);

constexpr const char* Name(EntryPoint entry) {
  constexpr const char* kNames[] = {
#define TETRAD_CUDA_NAME(member, symbol) "cu" #member,
      TETRAD_CUDA_ENTRY_POINTS(TETRAD_CUDA_NAME)
#undef TETRAD_CUDA_NAME
  };
  return kNames[static_cast<size_t>(entry)];
}

enum class CallKind : uint8_t {
  kQuestion,  // needs no context: works when the context is broken, never lacks memory
  kOrdinary,  // may lack memory; fails with what broke the context
  kWait,      // fails with what broke the context only: nothing else tells whether work is over
  kRelease,   // gives something back: takes effect whatever the context's state
};

constexpr CallKind Kind(EntryPoint entry) {
  switch (entry) {
    case EntryPoint::kInit:
    case EntryPoint::kDriverGetVersion:
    case EntryPoint::kGetErrorName:
    case EntryPoint::kGetErrorString:
    case EntryPoint::kDeviceGetCount:
    case EntryPoint::kDeviceGet:
    case EntryPoint::kDeviceGetName:
    case EntryPoint::kDeviceGetUuid:
    case EntryPoint::kDeviceGetAttribute:
    case EntryPoint::kDeviceTotalMem:
    case EntryPoint::kCtxSetCurrent:
    case EntryPoint::kCtxGetCurrent:
      return CallKind::kQuestion;
    case EntryPoint::kDevicePrimaryCtxRelease:
    case EntryPoint::kMemAddressFree:
    case EntryPoint::kMemRelease:
    case EntryPoint::kMemUnmap:
    case EntryPoint::kMemFreeHost:
    case EntryPoint::kStreamDestroy:
    case EntryPoint::kEventDestroy:
    case EntryPoint::kModuleUnload:
    case EntryPoint::kGraphDestroy:
    case EntryPoint::kGraphExecDestroy:
      return CallKind::kRelease;
    case EntryPoint::kCtxSynchronize:
    case EntryPoint::kStreamSynchronize:
    case EntryPoint::kStreamQuery:
    case EntryPoint::kEventSynchronize:
    case EntryPoint::kEventElapsedTime:
      return CallKind::kWait;
    default:
      return CallKind::kOrdinary;
  }
}

}  // namespace tetrad::cuda
