// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/context.h"

#include <utility>

namespace tetrad::cuda {

absl::StatusOr<std::unique_ptr<CudaContext>> CudaContext::Create(
    const CudaDriver& driver, CUdevice device, absl::AnyInvocable<void()> on_lost) {
  std::unique_ptr<CudaContext> made(new CudaContext(driver, device, std::move(on_lost)));
  TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(*made, DevicePrimaryCtxRetain, &made->context_, device));
  TETRAD_RETURN_IF_ERROR(made->Enter());
  return made;
}

CudaContext::~CudaContext() {
  if (context_ != nullptr) Release(driver_.DevicePrimaryCtxRelease(device_), "release");
}

absl::Status CudaContext::CheckWait(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  health_.Lose(result, call);
  return health_.status();
}

absl::Status CudaContext::Synchronize(CUstream stream) {
  return CheckWait(driver_.StreamSynchronize(stream), "cuStreamSynchronize");
}

absl::Status CudaContext::Synchronize(CUevent event) {
  return CheckWait(driver_.EventSynchronize(event), "cuEventSynchronize");
}

absl::StatusOr<bool> CudaContext::IsIdle(CUstream stream) {
  const CUresult result = driver_.StreamQuery(stream);
  if (result == CUDA_ERROR_NOT_READY) return false;
  TETRAD_RETURN_IF_ERROR(CheckWait(result, "cuStreamQuery"));
  return true;
}

absl::StatusOr<int> CudaContext::Attribute(CUdevice_attribute attribute) {
  int value = 0;
  TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(*this, DeviceGetAttribute, &value, attribute, device_));
  return value;
}

absl::StatusOr<int64_t> CudaContext::FreeBytes() {
  size_t free = 0, total = 0;
  TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(*this, MemGetInfo, &free, &total));
  return static_cast<int64_t>(free);
}

}  // namespace tetrad::cuda
