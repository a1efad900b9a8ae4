// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Entry points of modules, functions and launches.
#include <algorithm>

#include "absl/strings/str_cat.h"

#include "engine/cuda/simulated_driver/machine.h"
#include "engine/cuda/simulated_driver/tensor_maps.h"

namespace tetrad::cuda::simulated {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kMaxSharedBytes = 227 << 10;
constexpr int kReservedSharedBytes = 1 << 10;  // of a CTA
constexpr int kMultiprocessorShared = 228 << 10;
constexpr int kMultiprocessorThreads = 2048;
constexpr int kMultiprocessorCtas = 32;

}  // namespace

CUresult Machine::ModuleLoadData(CUmodule* handle, const void* image) {
  if (handle == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(mutex_);
  CUcontext context;
  if (const CUresult result = FindContext(&context); result != CUDA_SUCCESS) return result;
  if (const CUresult result = RefuseInCapture("cuModuleLoadData"); result != CUDA_SUCCESS) {
    return result;
  }
  const int device = CurrentDevice();
  if (!HasRoom(device, hardware_.module_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = NewHandle<CUmodule>();
  modules_[*handle] = {context, device};
  return CUDA_SUCCESS;
}

CUresult Machine::ModuleUnload(CUmodule handle) {
  std::lock_guard lock(mutex_);
  if (const CUresult result = RequireContext(); result != CUDA_SUCCESS) {
    return Misused("cuModuleUnload without a context", result);
  }
  if (modules_.erase(handle) == 0) {
    return Misused("cuModuleUnload of a module that is not live", CUDA_ERROR_INVALID_HANDLE);
  }
  for (const auto& [id, exec] : execs_) {
    if (broken_ != CUDA_SUCCESS) break;  // nothing runs any more
    for (const CUfunction function : exec->functions) {
      if (const auto found = functions_.find(function);
          found != functions_.end() && found->second.module == handle) {
        NoteMisuse("cuModuleUnload of a module that an instantiated graph uses");
      }
    }
  }
  std::erase_if(functions_, [&](const auto& entry) { return entry.second.module == handle; });
  return CUDA_SUCCESS;
}

CUresult Machine::ModuleGetFunction(CUfunction* handle, CUmodule module, const char* name) {
  std::lock_guard lock(mutex_);
  if (const CUresult result = RequireContext(); result != CUDA_SUCCESS) return result;
  if (handle == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!modules_.contains(module)) return CUDA_ERROR_INVALID_HANDLE;
  const KernelFacts* const facts = FindKernel(name);
  const auto runs_here = [&] {
    return facts->only_capability == 0 || facts->only_capability == hardware_.capability;
  };
  if (facts == nullptr || !runs_here()) return CUDA_ERROR_NOT_FOUND;
  for (const auto& [known, function] : functions_) {
    if (function.module == module && function.facts == facts) {
      *handle = known;
      return CUDA_SUCCESS;
    }
  }
  *handle = NewHandle<CUfunction>();
  functions_[*handle] = {.module = module, .facts = facts};
  return CUDA_SUCCESS;
}

CUresult Machine::FindFunction(CUfunction handle, Function** function) {
  if (const CUresult result = RequireContext(); result != CUDA_SUCCESS) return result;
  const auto found = functions_.find(handle);
  if (found == functions_.end()) return CUDA_ERROR_INVALID_HANDLE;
  *function = &found->second;
  return CUDA_SUCCESS;
}

CUresult Machine::FuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  if (value == nullptr || attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::lock_guard lock(mutex_);
  Function* function;
  if (const CUresult result = FindFunction(handle, &function); result != CUDA_SUCCESS) {
    return result;
  }
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) {
    *value = std::min(kMaxThreads, kMultiprocessorRegisters / function->facts->registers);
  } else if (attribute == CU_FUNC_ATTRIBUTE_NUM_REGS) {
    *value = function->facts->registers;
  } else if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    *value = function->max_dynamic_shared_bytes;
  } else if (attribute == CU_FUNC_ATTRIBUTE_BINARY_VERSION ||
             attribute == CU_FUNC_ATTRIBUTE_PTX_VERSION) {
    *value = hardware_.capability;
  } else {
    *value = 0;
  }
  return CUDA_SUCCESS;
}

CUresult Machine::FuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  std::lock_guard lock(mutex_);
  Function* function;
  if (const CUresult result = FindFunction(handle, &function); result != CUDA_SUCCESS) {
    return result;
  }
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    if (value < 0 || value > kMaxSharedBytes) return CUDA_ERROR_INVALID_VALUE;
    function->max_dynamic_shared_bytes = value;
    return CUDA_SUCCESS;
  }
  const bool carveout = attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
  return carveout && value >= -1 && value <= 100 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Machine::OccupancyMaxActiveBlocksPerMultiprocessor(int* ctas, CUfunction handle,
                                                            int threads, size_t shared_bytes) {
  if (ctas == nullptr || threads < 1) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(mutex_);
  Function* function;
  if (const CUresult result = FindFunction(handle, &function); result != CUDA_SUCCESS) {
    return result;
  }
  if (threads > kMaxThreads ||
      shared_bytes > static_cast<size_t>(function->max_dynamic_shared_bytes)) {
    *ctas = 0;
    return CUDA_SUCCESS;
  }
  *ctas =
      std::min({kMultiprocessorCtas, kMultiprocessorThreads / threads,
                kMultiprocessorRegisters / (function->facts->registers * threads),
                kMultiprocessorShared / (static_cast<int>(shared_bytes) + kReservedSharedBytes)});
  return CUDA_SUCCESS;
}

CUresult Machine::FormLaunch(const Function& function, const CUDA_KERNEL_NODE_PARAMS& parameters,
                             bool programmatic, KernelLaunch* launch) {
  launch->facts = function.facts;
  launch->programmatic = programmatic;
  launch->grid = {parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ};
  launch->block = {parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ};
  launch->shared_bytes = parameters.sharedMemBytes;
  const auto zero = [](uint32_t size) { return size == 0; };
  const uint64_t threads = uint64_t{launch->block[0]} * launch->block[1] * launch->block[2];
  if (std::any_of(launch->grid.begin(), launch->grid.end(), zero) || threads == 0 ||
      threads > kMaxThreads || launch->block[2] > 64 || launch->grid[0] > INT32_MAX ||
      launch->grid[1] > 65535 || launch->grid[2] > 65535 ||
      launch->shared_bytes > static_cast<uint32_t>(function.max_dynamic_shared_bytes) ||
      parameters.kernelParams == nullptr || parameters.extra != nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (threads * static_cast<uint64_t>(function.facts->registers) > kMultiprocessorRegisters) {
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  }
  // Not the driver's to know; the kernel would read and write past its shared memory.
  const KernelFacts& facts = *function.facts;
  if ((facts.threads != 0 && threads != static_cast<uint64_t>(facts.threads)) ||
      launch->shared_bytes < static_cast<uint32_t>(facts.shared_bytes)) {
    NoteMisuse(absl::StrCat(facts.entry, " with ", threads, " threads and ", launch->shared_bytes,
                            " bytes of shared memory"));
  }
  // Here one runs after the other all the same; on a device what is written and read would race.
  if (programmatic && !facts.waits_for_prior_grid) {
    NoteMisuse(absl::StrCat("a programmatic edge to ", facts.entry,
                            ", which does not wait for the kernel before it"));
  }
  for (size_t i = 0; i < launch->parameters.size() && function.facts->parameter_bytes[i] > 0; ++i) {
    const auto* const value = static_cast<const std::byte*>(parameters.kernelParams[i]);
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    launch->parameters[i].assign(value, value + function.facts->parameter_bytes[i]);
  }
  return CUDA_SUCCESS;
}

void Machine::AddUses(const KernelLaunch& launch, std::vector<AddressRange>& uses) {
  for (const CUdeviceptr address : launch.Addresses()) {
    if (address != 0) uses.push_back({address, address});
  }
}

std::function<CUresult(std::string*)> Machine::Runner(KernelLaunch launch, bool replay) {
  const bool spoil = replay && corrupt_replays_;
  return [this, launch = std::move(launch), spoil](std::string* why) {
    const CUresult result = RunKernel(launch, memory_, spoil, why);
    if (result != CUDA_SUCCESS) *why = absl::StrCat(launch.facts->entry, ": ", *why);
    return result;
  };
}

CUresult Machine::Launch(const char* call, const CUDA_KERNEL_NODE_PARAMS& parameters,
                         CUstream stream_handle, bool programmatic) {
  std::lock_guard lock(mutex_);
  Function* function;
  if (const CUresult result = FindFunction(parameters.func, &function); result != CUDA_SUCCESS) {
    return result;
  }
  std::shared_ptr<Stream> stream;
  if (const CUresult result = FindStream(stream_handle, &stream); result != CUDA_SUCCESS) {
    return Misused(absl::StrCat(call, " on the legacy stream or one that is not live"), result);
  }
  KernelLaunch launch;
  if (const CUresult result = FormLaunch(*function, parameters, programmatic, &launch);
      result != CUDA_SUCCESS) {
    stream->capture_invalid = true;
    return result;
  }
  if (stream->capture != nullptr) {
    if (stream->capture_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!stream->capture_any_thread && stream->capture_thread != std::this_thread::get_id()) {
      NoteMisuse("a launch of another thread on a stream that is being captured");
    }
    AddNode(*stream->capture, parameters.func, std::move(launch));
    return CUDA_SUCCESS;
  }
  Work work;
  AddUses(launch, work.uses);
  work.run = Runner(std::move(launch), /*replay=*/false);
  Enqueue(*stream, std::move(work));
  return CUDA_SUCCESS;
}

CUresult Machine::LaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                               unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                               unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                               void** parameters, void** extra) {
  return Launch("cuLaunchKernel",
                {.func = function,
                 .gridDimX = grid_x,
                 .gridDimY = grid_y,
                 .gridDimZ = grid_z,
                 .blockDimX = block_x,
                 .blockDimY = block_y,
                 .blockDimZ = block_z,
                 .sharedMemBytes = shared_bytes,
                 .kernelParams = parameters,
                 .extra = extra},
                stream, /*programmatic=*/false);
}

CUresult Machine::LaunchKernelEx(const CUlaunchConfig* config, CUfunction function,
                                 void** parameters, void** extra) {
  if (config == nullptr || config->numAttrs > 1 ||
      (config->numAttrs == 1 && config->attrs == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  bool programmatic = false;
  if (config->numAttrs == 1) {
    const CUlaunchAttribute& attribute = config->attrs[0];
    if (attribute.id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    programmatic = attribute.value.programmaticStreamSerializationAllowed != 0;
  }
  return Launch("cuLaunchKernelEx",
                {.func = function,
                 .gridDimX = config->gridDimX,
                 .gridDimY = config->gridDimY,
                 .gridDimZ = config->gridDimZ,
                 .blockDimX = config->blockDimX,
                 .blockDimY = config->blockDimY,
                 .blockDimZ = config->blockDimZ,
                 .sharedMemBytes = config->sharedMemBytes,
                 .kernelParams = parameters,
                 .extra = extra},
                config->hStream, programmatic);
}

CUresult Machine::TensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                       void* address, const cuuint64_t* sizes,
                                       const cuuint64_t* strides, const cuuint32_t* box,
                                       const cuuint32_t* steps, CUtensorMapInterleave interleave,
                                       CUtensorMapSwizzle swizzle,
                                       CUtensorMapL2promotion l2_promotion,
                                       CUtensorMapFloatOOBfill oob_fill) {
  if (map == nullptr || reinterpret_cast<uintptr_t>(map) % alignof(CUtensorMap) != 0 || rank < 1 ||
      rank > kTensorMapRank || sizes == nullptr || (rank > 1 && strides == nullptr) ||
      box == nullptr || steps == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  TensorMapSpec spec;
  spec.type = type;
  spec.rank = rank;
  spec.address = reinterpret_cast<uint64_t>(address);
  std::copy_n(sizes, rank, spec.dims.begin());
  if (rank > 1) std::copy_n(strides, rank - 1, spec.strides.begin());
  std::copy_n(box, rank, spec.box.begin());
  std::copy_n(steps, rank, spec.element_strides.begin());
  spec.interleave = interleave;
  spec.swizzle = swizzle;
  spec.l2_promotion = l2_promotion;
  spec.oob_fill = oob_fill;
  if (!CheckTensorMap(spec).ok()) return CUDA_ERROR_INVALID_VALUE;
  *map = EncodeMap(spec);
  return CUDA_SUCCESS;
}

}  // namespace tetrad::cuda::simulated
