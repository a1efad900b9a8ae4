// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/errors.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <new>
#include <string>

#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"

namespace tetrad::cuda {
namespace {

struct Verdict {
  Severity severity;
  absl::StatusCode code;
};
constexpr Verdict kDone{Severity::kRequest, absl::StatusCode::kOk};
// Less of it, or later, may work.
constexpr Verdict kLack{Severity::kRequest, absl::StatusCode::kResourceExhausted};
// Nothing a client asks for reaches the driver unchecked, so a call refused for
// its arguments, order or state is our bug, but one that harms this call only.
constexpr Verdict kOurs{Severity::kRequest, absl::StatusCode::kInternal};
constexpr Verdict kUnfit{Severity::kConfiguration, absl::StatusCode::kFailedPrecondition};
constexpr Verdict kLost{Severity::kFatal, absl::StatusCode::kInternal};

struct Row {
  int32_t number;
  Verdict verdict;
  const char* name;
};

// Where the header does not decide:
// * NOT_INITIALIZED, CONTEXT_IS_DESTROYED: our one context exists before any
//   other call and lives as long as the device, so neither can be a matter of
//   one call (a forked child gets the first for each).
// * INVALID_CONTEXT: a thread without the context; others have it.
// * INVALID_IMAGE, INVALID_SOURCE, INVALID_PTX: our images are constants of the
//   build, and an older driver refuses newer ones so.
// * NOT_READY is an answer, which its callers take before they make a status.
// * DEVICE_UNAVAILABLE, SYSTEM_NOT_READY, MPS_SERVER_NOT_READY come before there
//   is a context to lose.
// * MPS_RPC_FAILURE: under MPS the context lives in the server that does not answer.
// * KEY_ROTATION: without keys nothing crosses the bus of a confidential device.
// * UNKNOWN: as for numbers that are not here.
// clang-format off
constexpr Row kRows[] = {
    {0, kDone, "CUDA_SUCCESS"},
    {1, kOurs, "CUDA_ERROR_INVALID_VALUE"},
    {2, kLack, "CUDA_ERROR_OUT_OF_MEMORY"},
    {3, kLost, "CUDA_ERROR_NOT_INITIALIZED"},
    {4, kLost, "CUDA_ERROR_DEINITIALIZED"},
    {5, kUnfit, "CUDA_ERROR_PROFILER_DISABLED"},
    {6, kOurs, "CUDA_ERROR_PROFILER_NOT_INITIALIZED"},
    {7, kOurs, "CUDA_ERROR_PROFILER_ALREADY_STARTED"},
    {8, kOurs, "CUDA_ERROR_PROFILER_ALREADY_STOPPED"},
    {34, kUnfit, "CUDA_ERROR_STUB_LIBRARY"},
    {36, kUnfit, "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER"},
    {46, kUnfit, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
    {100, kUnfit, "CUDA_ERROR_NO_DEVICE"},
    {101, kUnfit, "CUDA_ERROR_INVALID_DEVICE"},
    {102, kUnfit, "CUDA_ERROR_DEVICE_NOT_LICENSED"},
    {200, kUnfit, "CUDA_ERROR_INVALID_IMAGE"},
    {201, kOurs, "CUDA_ERROR_INVALID_CONTEXT"},
    {202, kOurs, "CUDA_ERROR_CONTEXT_ALREADY_CURRENT"},
    {205, kOurs, "CUDA_ERROR_MAP_FAILED"},
    {206, kOurs, "CUDA_ERROR_UNMAP_FAILED"},
    {207, kOurs, "CUDA_ERROR_ARRAY_IS_MAPPED"},
    {208, kOurs, "CUDA_ERROR_ALREADY_MAPPED"},
    {209, kUnfit, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
    {210, kOurs, "CUDA_ERROR_ALREADY_ACQUIRED"},
    {211, kOurs, "CUDA_ERROR_NOT_MAPPED"},
    {212, kOurs, "CUDA_ERROR_NOT_MAPPED_AS_ARRAY"},
    {213, kOurs, "CUDA_ERROR_NOT_MAPPED_AS_POINTER"},
    {214, kLost, "CUDA_ERROR_ECC_UNCORRECTABLE"},
    {215, kUnfit, "CUDA_ERROR_UNSUPPORTED_LIMIT"},
    {216, kOurs, "CUDA_ERROR_CONTEXT_ALREADY_IN_USE"},
    {217, kUnfit, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"},
    {218, kUnfit, "CUDA_ERROR_INVALID_PTX"},
    {219, kOurs, "CUDA_ERROR_INVALID_GRAPHICS_CONTEXT"},
    {220, kLost, "CUDA_ERROR_NVLINK_UNCORRECTABLE"},
    {221, kUnfit, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND"},
    {222, kUnfit, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
    {223, kUnfit, "CUDA_ERROR_JIT_COMPILATION_DISABLED"},
    {224, kUnfit, "CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY"},
    {225, kUnfit, "CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC"},
    {226, kLost, "CUDA_ERROR_CONTAINED"},
    {300, kUnfit, "CUDA_ERROR_INVALID_SOURCE"},
    {301, kOurs, "CUDA_ERROR_FILE_NOT_FOUND"},
    {302, kUnfit, "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND"},
    {303, kUnfit, "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED"},
    {304, kOurs, "CUDA_ERROR_OPERATING_SYSTEM"},
    {400, kOurs, "CUDA_ERROR_INVALID_HANDLE"},
    {401, kOurs, "CUDA_ERROR_ILLEGAL_STATE"},
    {402, kOurs, "CUDA_ERROR_LOSSY_QUERY"},
    {500, kOurs, "CUDA_ERROR_NOT_FOUND"},
    {600, kOurs, "CUDA_ERROR_NOT_READY"},
    {700, kLost, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    {701, kOurs, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
    {702, kLost, "CUDA_ERROR_LAUNCH_TIMEOUT"},
    {703, kOurs, "CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING"},
    {704, kOurs, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"},
    {705, kOurs, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED"},
    {708, kOurs, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE"},
    {709, kLost, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
    {710, kLost, "CUDA_ERROR_ASSERT"},
    {711, kLack, "CUDA_ERROR_TOO_MANY_PEERS"},
    {712, kOurs, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
    {713, kOurs, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"},
    {714, kLost, "CUDA_ERROR_HARDWARE_STACK_ERROR"},
    {715, kLost, "CUDA_ERROR_ILLEGAL_INSTRUCTION"},
    {716, kLost, "CUDA_ERROR_MISALIGNED_ADDRESS"},
    {717, kLost, "CUDA_ERROR_INVALID_ADDRESS_SPACE"},
    {718, kLost, "CUDA_ERROR_INVALID_PC"},
    {719, kLost, "CUDA_ERROR_LAUNCH_FAILED"},
    {720, kOurs, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"},
    {721, kLost, "CUDA_ERROR_TENSOR_MEMORY_LEAK"},
    {800, kUnfit, "CUDA_ERROR_NOT_PERMITTED"},
    {801, kUnfit, "CUDA_ERROR_NOT_SUPPORTED"},
    {802, kUnfit, "CUDA_ERROR_SYSTEM_NOT_READY"},
    {803, kUnfit, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
    {804, kUnfit, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"},
    {805, kUnfit, "CUDA_ERROR_MPS_CONNECTION_FAILED"},
    {806, kLost, "CUDA_ERROR_MPS_RPC_FAILURE"},
    {807, kUnfit, "CUDA_ERROR_MPS_SERVER_NOT_READY"},
    {808, kUnfit, "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED"},
    {809, kUnfit, "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED"},
    {810, kLost, "CUDA_ERROR_MPS_CLIENT_TERMINATED"},
    {811, kUnfit, "CUDA_ERROR_CDP_NOT_SUPPORTED"},
    {812, kUnfit, "CUDA_ERROR_CDP_VERSION_MISMATCH"},
    {900, kOurs, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
    {901, kOurs, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
    {902, kOurs, "CUDA_ERROR_STREAM_CAPTURE_MERGE"},
    {903, kOurs, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"},
    {904, kOurs, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"},
    {905, kOurs, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"},
    {906, kOurs, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"},
    {907, kOurs, "CUDA_ERROR_CAPTURED_EVENT"},
    {908, kOurs, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"},
    {909, kOurs, "CUDA_ERROR_TIMEOUT"},
    {910, kOurs, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE"},
    {911, kLost, "CUDA_ERROR_EXTERNAL_DEVICE"},
    {912, kOurs, "CUDA_ERROR_INVALID_CLUSTER_SIZE"},
    {913, kOurs, "CUDA_ERROR_FUNCTION_NOT_LOADED"},
    {914, kOurs, "CUDA_ERROR_INVALID_RESOURCE_TYPE"},
    {915, kOurs, "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION"},
    {916, kLost, "CUDA_ERROR_KEY_ROTATION"},
    {999, kLost, "CUDA_ERROR_UNKNOWN"},
};
// clang-format on

static_assert(std::adjacent_find(std::begin(kRows), std::end(kRows),
                                 [](const Row& a, const Row& b) { return a.number >= b.number; }) ==
                  std::end(kRows),
              "ascending, each number once");

constexpr char kUnknownName[] = "unknown CUDA error";

absl::Status MakeStatus(absl::StatusCode code, CUresult result, const char* call,
                        absl::string_view detail) {
  const char* const name = Classify(result).name;
  try {
    std::string text = absl::StrCat(call, ": ", name);
    if (name == kUnknownName) absl::StrAppend(&text, " ", static_cast<int32_t>(result));
    if (!detail.empty()) absl::StrAppend(&text, ": ", detail);
    switch (code) {
      case absl::StatusCode::kResourceExhausted:
        return ReasonError(Reason::kDeviceMemory, text);
      case absl::StatusCode::kInternal:
        return ReasonError(Reason::kInternal, text);
      case absl::StatusCode::kFailedPrecondition:
        return ReasonError(Reason::kUnsupportedHere, text);
      default:
        return absl::Status(code, text);
    }
  } catch (const std::bad_alloc&) {
    return absl::Status(code, "");
  }
}

}  // namespace

Classification Classify(CUresult result) {
  const auto number = static_cast<int32_t>(result);
  const Row* const row =
      std::lower_bound(std::begin(kRows), std::end(kRows), number,
                       [](const Row& r, int32_t wanted) { return r.number < wanted; });
  if (row == std::end(kRows) || row->number != number) {
    return {kLost.severity, kLost.code, kUnknownName};
  }
  return {row->verdict.severity, row->verdict.code, row->name};
}

absl::Status CudaStatus(CUresult result, const char* call, absl::string_view detail) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  return MakeStatus(Classify(result).code, result, call, detail);
}

void DeviceHealth::Note(CUresult result, const char* call) {
  if (Classify(result).severity == Severity::kFatal) Lose(result, call);
}

void DeviceHealth::Lose(CUresult result, const char* call) {
  {
    std::lock_guard lock(mutex_);
    if (lost_.load(std::memory_order_relaxed)) return;
    result_ = result;
    call_ = call;
    lost_.store(true, std::memory_order_release);
  }
  if (on_lost_) on_lost_();
}

absl::Status DeviceHealth::Check(CUresult result, const char* call, absl::string_view detail) {
  Note(result, call);
  return CudaStatus(result, call, detail);
}

absl::Status DeviceHealth::LostStatus() const {
  // Also if the result by itself would not have been the end.
  return MakeStatus(absl::StatusCode::kInternal, result_, call_, "the device is lost");
}

}  // namespace tetrad::cuda
