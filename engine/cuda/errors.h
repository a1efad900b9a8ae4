// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What each error of the CUDA driver means for this process, and DeviceHealth,
// which remembers that a device was lost.
//
// The classification is a table over every error of the header, by number: the
// numbers are the driver's ABI, so a build knows errors that its own toolkit
// does not name yet, and names need no driver. A number the table lacks is
// fatal: what a newer driver reports may be the loss of the context, and
// results must not be served on that chance.
//
// Everything here is thread-safe. Lack of host memory costs a message, never a
// code: nothing throws.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>

#include <cuda.h>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tetrad::cuda {

enum class Severity : uint8_t {
  kRequest,        // this call failed; the process goes on
  kConfiguration,  // this machine, driver or build cannot do what was asked
  kFatal,          // context or device are lost: every later call fails too
};

struct Classification {
  Severity severity = Severity::kFatal;
  absl::StatusCode code = absl::StatusCode::kInternal;
  const char* name = "";  // the enumerator; lives as long as the program
};

// CUDA_SUCCESS is kRequest and kOk.
Classification Classify(CUresult result);

// OK, or e.g. "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY: 4194304 bytes".
absl::Status CudaStatus(CUresult result, const char* call, absl::string_view detail = {});

class DeviceHealth {
 public:
  // `on_lost` is called at most once, by the thread that noted the first fatal
  // error, after status() tells of it, without a lock.
  explicit DeviceHealth(absl::AnyInvocable<void()> on_lost = {}) : on_lost_(std::move(on_lost)) {}
  DeviceHealth(const DeviceHealth&) = delete;
  DeviceHealth& operator=(const DeviceHealth&) = delete;

  // Remembers the first fatal result, for ever; ignores others. `call` lives as
  // long as the program. Allocates nothing but in `on_lost`.
  void Note(CUresult result, const char* call);
  // Remembers it whatever it is.
  void Lose(CUresult result, const char* call);
  // Note() and CudaStatus().
  absl::Status Check(CUresult result, const char* call, absl::string_view detail = {});
  // OK until the first fatal result, then INTERNAL with that. One atomic load
  // while all is well.
  absl::Status status() const {
    return lost_.load(std::memory_order_acquire) ? LostStatus() : absl::OkStatus();
  }

 private:
  absl::Status LostStatus() const;

  std::mutex mutex_;  // of the three below, until lost_ is set; then they are constant
  CUresult result_ = CUDA_SUCCESS;
  const char* call_ = "";
  std::atomic<bool> lost_ = false;

  absl::AnyInvocable<void()> on_lost_;
};

}  // namespace tetrad::cuda
