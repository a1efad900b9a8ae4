// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/kernel_library.h"

#include <string>

#include "absl/strings/str_cat.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/portable.h"
#include "kernels/cuda/proof.h"
#include "kernels/cuda/rates.h"
#include "kernels/sm90/pack.h"
#include "kernels/sm90/prepare.h"

namespace tetrad::cuda {
namespace {

constexpr int32_t kCompletionThreads = 32;
constexpr int kHopper = 90;

}  // namespace

absl::StatusOr<std::unique_ptr<KernelLibrary>> KernelLibrary::Load(CudaContext& context,
                                                                   int capability,
                                                                   bool portable_only) {
  std::unique_ptr<KernelLibrary> library(new KernelLibrary(context));
  KernelLibrary& l = *library;
  TETRAD_ASSIGN_OR_RETURN(const CUmodule portable,
                          l.LoadUnit(KernelImages(), "portable", capability));
  for (int type = 0; type < kActivationTypes; ++type) {
    TETRAD_RETURN_IF_ERROR(l.Find(portable, PortableEntry(static_cast<ActivationType>(type)),
                                  kPortableThreads, kPortableSharedBytes,
                                  l.gemm_[static_cast<size_t>(type)]));
  }
  TETRAD_ASSIGN_OR_RETURN(const CUmodule completion,
                          l.LoadUnit(KernelImages(), "completion", capability));
  TETRAD_RETURN_IF_ERROR(
      l.Find(completion, kCompletionEntry, kCompletionThreads, 0, l.completion_));
  TETRAD_ASSIGN_OR_RETURN(const CUmodule proof, l.LoadUnit(KernelImages(), "proof", capability));
  TETRAD_RETURN_IF_ERROR(l.Find(proof, kProofFillEntry, kProofThreads, 0, l.proof_fill_));
  TETRAD_RETURN_IF_ERROR(l.Find(proof, kProofCompareEntry, kProofThreads, 0, l.proof_compare_));
  TETRAD_ASSIGN_OR_RETURN(const CUmodule rates, l.LoadUnit(KernelImages(), "rates", capability));
  TETRAD_RETURN_IF_ERROR(l.Find(rates, kReadRateEntry, kRateThreads, 0, l.read_rate_));
  TETRAD_RETURN_IF_ERROR(l.Find(rates, kMmaRateEntry, kRateThreads, 0, l.mma_rate_));
  if (capability == kHopper && !portable_only) TETRAD_RETURN_IF_ERROR(l.LoadHopper(capability));
  return library;
}

KernelLibrary::~KernelLibrary() {
  if (!context_.health().ok()) return;  // its code may still run
  for (const CUmodule module : modules_) {
    context_.Release(context_.driver().ModuleUnload(module), "cuModuleUnload");
  }
}

absl::Status KernelLibrary::LoadHopper(int capability) {
  TETRAD_ASSIGN_OR_RETURN(const CUmodule prepare, LoadUnit(KernelImages(), "prepare", capability));
  TETRAD_RETURN_IF_ERROR(Find(prepare, sm90::kPrepareEntry, sm90::kPrepareThreads, 0, prepare_));
  TETRAD_RETURN_IF_ERROR(Find(prepare, sm90::kSnapshotEntry, sm90::kPrepareThreads, 0, snapshot_));
  for (const bool bf16 : {false, true}) {
    const std::string type = bf16 ? "bf16" : "fp16";
    TETRAD_ASSIGN_OR_RETURN(const CUmodule gemm,
                            LoadUnit(HopperImages(), absl::StrCat("gemm_", type), capability));
    for (size_t i = 0; i < std::size(sm90::kInstances); ++i) {
      const sm90::Instance& instance = sm90::kInstances[i];
      TETRAD_RETURN_IF_ERROR(Find(
          gemm, absl::StrCat("tetrad_sm90_", type, "_", instance.name).c_str(),
          sm90::Threads(instance), sm90::SharedBytes(instance), hopper_gemm_[bf16 ? 1 : 0][i]));
    }
  }
  TETRAD_ASSIGN_OR_RETURN(const CUmodule pack, LoadUnit(KernelImages(), "pack", capability));
  return Find(pack, sm90::kPackEntry, sm90::kPackThreads, 0, pack_);
}

absl::StatusOr<CUmodule> KernelLibrary::LoadUnit(std::span<const KernelImage> images,
                                                 std::string_view unit, int capability) {
  const KernelImage* const image = ChooseImage(images, unit, capability);
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
