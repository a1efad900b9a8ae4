// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/kernel_library.h"

#include <string>

#include "absl/strings/str_cat.h"

#include "kernels/cuda/images.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/portable.h"
#include "kernels/cuda/proof.h"
#include "kernels/cuda/rates.h"

namespace tetrad::cuda {
namespace {

constexpr int32_t kCompletionThreads = 32;

}  // namespace

absl::StatusOr<std::unique_ptr<KernelLibrary>> KernelLibrary::Load(CudaContext& context,
                                                                   int capability) {
  std::unique_ptr<KernelLibrary> library(new KernelLibrary(context));
  KernelLibrary& l = *library;
  TETRAD_ASSIGN_OR_RETURN(const CUmodule portable, l.LoadUnit("portable", capability));
  for (int type = 0; type < kActivationTypes; ++type) {
    TETRAD_RETURN_IF_ERROR(l.Find(portable, PortableEntry(static_cast<ActivationType>(type)),
                                  kPortableThreads, kPortableSharedBytes,
                                  l.gemm_[static_cast<size_t>(type)]));
  }
  TETRAD_ASSIGN_OR_RETURN(const CUmodule completion, l.LoadUnit("completion", capability));
  TETRAD_RETURN_IF_ERROR(
      l.Find(completion, kCompletionEntry, kCompletionThreads, 0, l.completion_));
  TETRAD_ASSIGN_OR_RETURN(const CUmodule proof, l.LoadUnit("proof", capability));
  TETRAD_RETURN_IF_ERROR(l.Find(proof, kProofFillEntry, kProofThreads, 0, l.proof_fill_));
  TETRAD_RETURN_IF_ERROR(l.Find(proof, kProofCompareEntry, kProofThreads, 0, l.proof_compare_));
  TETRAD_ASSIGN_OR_RETURN(const CUmodule rates, l.LoadUnit("rates", capability));
  TETRAD_RETURN_IF_ERROR(l.Find(rates, kReadRateEntry, kRateThreads, 0, l.read_rate_));
  TETRAD_RETURN_IF_ERROR(l.Find(rates, kMmaRateEntry, kRateThreads, 0, l.mma_rate_));
  return library;
}

KernelLibrary::~KernelLibrary() {
  if (!context_.health().ok()) return;  // its code may still run
  for (const CUmodule module : modules_) {
    context_.Release(context_.driver().ModuleUnload(module), "cuModuleUnload");
  }
}

absl::StatusOr<CUmodule> KernelLibrary::LoadUnit(std::string_view unit, int capability) {
  const KernelImage* const image = ChooseImage(KernelImages(), unit, capability);
  if (image == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("this build has no code of ",
                                                      std::string(unit), " for compute capability ",
                                                      capability / 10, ".", capability % 10));
  }
  modules_.reserve(modules_.size() + 1);
  CUmodule module = nullptr;
  TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(context_, ModuleLoadData, &module, image->bytes.data()));
  modules_.push_back(module);
  return module;
}

absl::Status KernelLibrary::Find(CUmodule module, const char* entry, int32_t threads,
                                 int32_t shared_bytes, Kernel& kernel) {
  kernel.threads = static_cast<uint32_t>(threads);
  kernel.shared_bytes = static_cast<uint32_t>(shared_bytes);
  TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(context_, ModuleGetFunction, &kernel.function, module, entry));
  if (shared_bytes > 0) {
    TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(context_, FuncSetAttribute, kernel.function,
                                       CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                       shared_bytes));
  }
  int local_bytes = 0;
  TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(context_, FuncGetAttribute, &local_bytes,
                                     CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, kernel.function));
  if (local_bytes > 0) {
    return absl::InternalError(
        absl::StrCat(entry, " uses ", local_bytes, " bytes of local memory"));
  }
  int ctas = 0;
  TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(context_, OccupancyMaxActiveBlocksPerMultiprocessor, &ctas,
                                     kernel.function, threads, static_cast<size_t>(shared_bytes)));
  if (ctas < 1) {
    return absl::FailedPreconditionError(
        absl::StrCat(entry, " does not fit on a multiprocessor of this device: ", shared_bytes,
                     " bytes of shared memory, ", threads, " threads"));
  }
  kernel.ctas_per_multiprocessor = ctas;
  return absl::OkStatus();
}

}  // namespace tetrad::cuda
