// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/emulation/kernels.h"

#include "kernels/cuda/emulation/language.h"
// Below the words that stand for CUDA's.
#include "kernels/cuda/completion.cu"
#include "kernels/cuda/portable.cu"
#include "kernels/cuda/proof.cu"
#include "kernels/sm90/pack.cu"
#include "kernels/sm90/prepare.cu"

namespace tetrad::cuda::emulation {
namespace {

template <class... Arguments, size_t... i>
void Call(void (*kernel)(Arguments...), void** arguments, std::index_sequence<i...>) {
  kernel(*static_cast<std::remove_cvref_t<Arguments>*>(arguments[i])...);
}

template <auto kernel>
void CallWith(void** arguments) {
  const auto call = [&]<class... Arguments>(void (*)(Arguments...)) {
    Call<Arguments...>(kernel, arguments, std::index_sequence_for<Arguments...>());
  };
  call(kernel);
}

struct Entry {
  std::string_view name;
  Kernel kernel;
};

constexpr Entry kEntries[] = {
    {PortableEntry(ActivationType::kNvfp4), CallWith<&tetrad_portable_nvfp4>},
    {PortableEntry(ActivationType::kFp16), CallWith<&tetrad_portable_fp16>},
    {PortableEntry(ActivationType::kBf16), CallWith<&tetrad_portable_bf16>},
    {kCompletionEntry, CallWith<&tetrad_completion>},
    {kProofFillEntry, CallWith<&tetrad_proof_fill>},
    {kProofCompareEntry, CallWith<&tetrad_proof_compare>},
    {sm90::kPrepareEntry, CallWith<&tetrad_sm90_prepare>},
    {sm90::kPackEntry, CallWith<&tetrad_sm90_pack>},
    {sm90::kUnpackEntry, CallWith<&tetrad_sm90_unpack>},
};

}  // namespace

Kernel FindKernel(std::string_view entry) {
  for (const Entry& known : kEntries) {
    if (known.name == entry) return known.kernel;
  }
  return nullptr;
}

}  // namespace tetrad::cuda::emulation
