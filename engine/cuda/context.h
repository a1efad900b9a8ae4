// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// CudaContext: the driver, one device and its primary context, and whether they
// are still to be trusted. Every call of the driver goes through it, so that
// every result is looked at.
//
// Thread-safe.
#pragma once

#include <memory>
#include <mutex>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"

#include "engine/cuda/errors.h"
#include "engine/support/status_macros.h"
#include "kernels/cuda/driver.h"

// Calls an entry point and gives its result as a status, e.g.
// TETRAD_CUDA(context, EventRecord, event, stream). Not for waiting, see below.
#define TETRAD_CUDA(context, entry, ...) \
  (context).Check((context).driver().entry(__VA_ARGS__), "cu" #entry)

namespace tetrad::cuda {

class CudaContext {
 public:
  // `on_lost` is called once, when an error ended the context.
  static absl::StatusOr<std::unique_ptr<CudaContext>> Create(const CudaDriver& driver,
                                                             CUdevice device,
                                                             absl::AnyInvocable<void()> on_lost);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;

  const CudaDriver& driver() const { return driver_; }
  CUdevice device() const { return device_; }

  // Makes the context current in the calling thread. Before any call that needs one.
  absl::Status Enter() {
    TETRAD_RETURN_IF_ERROR(health_.status());
    return Check(driver_.CtxSetCurrent(context_), "cuCtxSetCurrent");
  }
  absl::Status Check(CUresult result, const char* call, absl::string_view detail = {}) {
    return result == CUDA_SUCCESS ? absl::OkStatus() : health_.Check(result, call, detail);
  }
  // Of calls that give something back: what they say matters only if it is the
  // end of the device.
  void Release(CUresult result, const char* call) { health_.Note(result, call); }

  // Wait until what the stream was told to do is done, or until the event has come.
  // A wait that fails ends the use of the device, whatever the error: the work may
  // still be under way, and what it uses must not be given back.
  absl::Status Synchronize(CUstream stream);
  absl::Status Synchronize(CUevent event);
  // Whether the stream has nothing left to do; as above.
  absl::StatusOr<bool> IsIdle(CUstream stream);
  absl::Status health() const { return health_.status(); }

  absl::StatusOr<int> Attribute(CUdevice_attribute attribute);
  absl::StatusOr<int64_t> FreeBytes();
  // Held while device memory is taken or given back, so that a fall of the free
  // bytes can be put down to one of them.
  std::mutex& memory_mutex() { return memory_mutex_; }

 private:
  CudaContext(const CudaDriver& driver, CUdevice device, absl::AnyInvocable<void()> on_lost)
      : driver_(driver), device_(device), health_(std::move(on_lost)) {}
  absl::Status CheckWait(CUresult result, const char* call);

  const CudaDriver driver_;
  const CUdevice device_;
  CUcontext context_ = nullptr;
  DeviceHealth health_;
  std::mutex memory_mutex_;
};

}  // namespace tetrad::cuda
