// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "bench/register_device.h"
#include "engine/cuda/cuda_device.h"
#include "engine/steady_clock.h"
#include "engine/support/status_macros.h"
#include "kernels/cuda/driver.h"

namespace tetrad {
namespace {

using cuda::CudaDevice;
using cuda::CudaDriver;

constexpr size_t kBlockBytes = size_t{256} << 20;

absl::Status Check(CUresult result, const char* call) {
  return result == CUDA_SUCCESS
             ? absl::OkStatus()
             : absl::InternalError(absl::StrCat(call, ": error ", static_cast<int>(result)));
}

// The driver's number of a device of this uuid, GPU-xxxxxxxx-xxxx-...
absl::StatusOr<int> NumberOf(const CudaDriver& driver, const std::string& uuid) {
  const std::string wanted = absl::StrReplaceAll(uuid, {{"GPU-", ""}, {"-", ""}});
  int count = 0;
  TETRAD_RETURN_IF_ERROR(Check(driver.DeviceGetCount(&count), "cuDeviceGetCount"));
  for (int number = 0; number < count; ++number) {
    CUdevice device = 0;
    CUuuid id{};
    TETRAD_RETURN_IF_ERROR(Check(driver.DeviceGet(&device, number), "cuDeviceGet"));
    TETRAD_RETURN_IF_ERROR(Check(driver.DeviceGetUuid(&id, device), "cuDeviceGetUuid"));
    if (absl::BytesToHexString({id.bytes, sizeof(id.bytes)}) == wanted) return number;
  }
  return absl::NotFoundError(absl::StrCat("no device ", uuid));
}

absl::StatusOr<double> Copy(const CudaDriver& driver, CUdeviceptr to, const void* from,
                            int64_t bytes) {
  CUstream stream = nullptr;
  TETRAD_RETURN_IF_ERROR(Check(driver.StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0),
                               "cuStreamCreateWithPriority"));
  const absl::Cleanup destroy = [&] { driver.StreamDestroy(stream); };
  Instant began = 0;
  // The first copy is not timed.
  for (int64_t left = bytes + static_cast<int64_t>(kBlockBytes); left > 0;) {
    const auto piece = static_cast<size_t>(std::min<int64_t>(left, kBlockBytes));
    TETRAD_RETURN_IF_ERROR(
        Check(driver.MemcpyHtoDAsync(to, from, piece, stream), "cuMemcpyHtoDAsync"));
    left -= static_cast<int64_t>(piece);
    if (began != 0) continue;
    TETRAD_RETURN_IF_ERROR(Check(driver.StreamSynchronize(stream), "cuStreamSynchronize"));
    began = SteadyNow();
  }
  TETRAD_RETURN_IF_ERROR(Check(driver.StreamSynchronize(stream), "cuStreamSynchronize"));
  return 1e-9 * static_cast<double>(SteadyNow() - began);
}

absl::StatusOr<double> CopySeconds(Device& device, int64_t bytes, int) {
  const auto& gpu = static_cast<const CudaDevice&>(device);
  const CudaDriver& driver = gpu.driver();
  TETRAD_RETURN_IF_ERROR(gpu.Enter());
  TETRAD_ASSIGN_OR_RETURN(const int number, NumberOf(driver, device.limits().uuid));
  void* from = nullptr;
  TETRAD_RETURN_IF_ERROR(Check(driver.MemHostAlloc(&from, kBlockBytes, 0), "cuMemHostAlloc"));
  const absl::Cleanup free_host = [&] { driver.MemFreeHost(from); };
  std::memset(from, 1, kBlockBytes);

  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = number};
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr to = 0;
  // A multiple of every granularity there is.
  TETRAD_RETURN_IF_ERROR(
      Check(driver.MemCreate(&handle, kBlockBytes, &properties, 0), "cuMemCreate"));
  const absl::Cleanup release = [&] { driver.MemRelease(handle); };
  TETRAD_RETURN_IF_ERROR(
      Check(driver.MemAddressReserve(&to, kBlockBytes, 0, 0, 0), "cuMemAddressReserve"));
  const absl::Cleanup unreserve = [&] { driver.MemAddressFree(to, kBlockBytes); };
  TETRAD_RETURN_IF_ERROR(Check(driver.MemMap(to, kBlockBytes, 0, handle, 0), "cuMemMap"));
  const absl::Cleanup unmap = [&] { driver.MemUnmap(to, kBlockBytes); };
  const CUmemAccessDesc access = {.location = properties.location,
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  TETRAD_RETURN_IF_ERROR(Check(driver.MemSetAccess(to, kBlockBytes, &access, 1), "cuMemSetAccess"));
  return Copy(driver, to, from, bytes);
}

}  // namespace

absl::StatusOr<DeviceUnderTest> CudaUnderTest() {
  TETRAD_ASSIGN_OR_RETURN(const CudaDriver driver, cuda::LoadCudaDriver());
  return DeviceUnderTest{
      .make = [driver](std::function<void()> wake) -> absl::StatusOr<std::unique_ptr<Device>> {
        return CudaDevice::Create(driver, {.measure_rates = false}, std::move(wake));
      },
      .copy = "page-locked host to device, one stream",
      .copy_seconds = &CopySeconds};
}

}  // namespace tetrad
