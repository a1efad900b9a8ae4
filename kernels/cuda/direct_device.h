// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// DirectDevice: device 0 and its kernels without the engine, for tests and
// benchmarks: one context, one stream, one arena of memory that is given out and
// taken back as a whole. Not thread-safe. After Open, an error of the driver is
// a failed test: it is printed and ends the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "kernels/cuda/driver.h"
#include "kernels/cuda/images.h"

namespace tetrad::cuda {

class DirectDevice {
 public:
  // FAILED_PRECONDITION if the driver has no device.
  static absl::StatusOr<std::unique_ptr<DirectDevice>> Open(const CudaDriver& driver,
                                                            size_t arena_bytes);
  ~DirectDevice();
  DirectDevice(const DirectDevice&) = delete;
  DirectDevice& operator=(const DirectDevice&) = delete;

  const CudaDriver& driver() const { return driver_; }
  CUstream stream() const { return stream_; }
  const std::string& name() const { return name_; }
  int capability() const { return capability_; }  // 90 for 9.0
  int multiprocessors() const { return multiprocessors_; }

  // An entry of the image that this device takes, or of the one given; with
  // `shared_bytes` of dynamic shared memory allowed.
  CUfunction Function(std::string_view unit, const char* entry, int shared_bytes = 0);
  CUfunction Function(const KernelImage& image, const char* entry, int shared_bytes = 0);
  // CTAs of a multiprocessor.
  int Occupancy(CUfunction function, int threads, int shared_bytes) const;

  // Of the arena; a multiple of 256. All memory is let go of by Reset.
  CUdeviceptr Allocate(size_t bytes);
  void Reset() { used_ = 0; }
  CUdeviceptr arena() const { return arena_; }
  // Page-locked host memory that the device writes, until the end.
  void* AllocateHost(size_t bytes, CUdeviceptr* device);

  // In stream order; Download waits.
  void Upload(CUdeviceptr to, std::span<const std::byte> from);
  void Download(std::span<std::byte> to, CUdeviceptr from);
  void Fill(CUdeviceptr to, uint8_t value, size_t bytes);
  template <class... Arguments>
  void Launch(CUfunction function, int grid, int threads, int shared_bytes,
              const Arguments&... arguments) {
    void* addresses[] = {const_cast<Arguments*>(&arguments)...};
    LaunchRaw(function, grid, threads, shared_bytes, addresses);
  }
  void Synchronize();

  // Prints and ends the program unless `result` is success.
  void Require(CUresult result, const char* what) const;

 private:
  DirectDevice() = default;
  void CreateArena(CUdevice device, size_t bytes);
  void LaunchRaw(CUfunction function, int grid, int threads, int shared_bytes, void** arguments);

  CudaDriver driver_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  std::string name_;
  int capability_ = 0;
  int multiprocessors_ = 0;
  std::map<const KernelImage*, CUmodule> modules_;
  std::vector<void*> host_;
  CUmemGenericAllocationHandle handle_ = 0;
  CUdeviceptr arena_ = 0;
  size_t arena_bytes_ = 0;
  size_t used_ = 0;
};

}  // namespace tetrad::cuda
