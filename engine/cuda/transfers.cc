// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/transfers.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "engine/cuda/ranges.h"

namespace tetrad::cuda {
namespace {

constexpr int64_t kLargeBytes = 1 << 20;  // of a copy that leaves slots to others

}  // namespace

// One transfer's hold on a slot. May wait for it, so what is asked of the context
// is asked after it.
class Transfers::Lease {
 public:
  explicit Lease(Transfers& owner, size_t leave = 0) : owner_(owner) {
    std::unique_lock lock(owner_.mutex_);
    owner_.returned_.wait(lock, [&] { return owner_.idle_.size() > leave; });
    slot_ = owner_.idle_.back();
    owner_.idle_.pop_back();
  }
  ~Lease() {
    {
      std::lock_guard lock(owner_.mutex_);
      owner_.idle_.push_back(slot_);
    }
    owner_.returned_.notify_all();  // they do not all wait for the same
  }
  Lease(const Lease&) = delete;
  Slot& operator*() const { return *slot_; }

 private:
  Transfers& owner_;
  Slot* slot_;
};

absl::StatusOr<std::unique_ptr<Transfers>> Transfers::Create(CudaContext& context, int slots) {
  std::unique_ptr<Transfers> transfers(new Transfers(context, slots));
  for (Slot& slot : transfers->slots_) TETRAD_RETURN_IF_ERROR(transfers->Make(slot));
  return transfers;
}

Transfers::Transfers(CudaContext& context, int slots)
    : context_(context),
      slots_(static_cast<size_t>(slots)),
      kept_(std::min((slots_.size() + 3) / 4, slots_.size() - 1)) {
  for (Slot& slot : slots_) idle_.push_back(&slot);
}

Transfers::~Transfers() {
  if (!context_.Enter().ok()) return;
  for (Slot& slot : slots_) Destroy(slot);
}

absl::Status Transfers::Make(Slot& slot) {
  for (Half& half : slot) {
    TETRAD_RETURN_IF_ERROR(
        TETRAD_CUDA(context_, StreamCreateWithPriority, &half.stream, CU_STREAM_NON_BLOCKING, 0));
    void* memory = nullptr;
    TETRAD_RETURN_IF_ERROR(context_.Check(
        context_.driver().MemHostAlloc(&memory, kHalfBytes, CU_MEMHOSTALLOC_PORTABLE),
        "cuMemHostAlloc", absl::StrCat(kHalfBytes, " bytes of page-locked host memory")));
    half.memory = static_cast<std::byte*>(memory);
  }
  return absl::OkStatus();
}

void Transfers::Destroy(Slot& slot) {
  for (Half& half : slot) {
    if (half.stream != nullptr) {
      context_.Release(context_.driver().StreamDestroy(half.stream), "cuStreamDestroy");
    }
    if (half.memory != nullptr) {
      context_.Release(context_.driver().MemFreeHost(half.memory), "cuMemFreeHost");
    }
    half = Half{};
  }
}

absl::Status Transfers::Finish(Slot& slot) {
  absl::Status status;
  for (const Half& half : slot) status.Update(context_.Synchronize(half.stream));
  return status;
}

absl::Status Transfers::ToDevice(CUdeviceptr to, int64_t bytes, FillSource source) {
  if (bytes == 0) return absl::OkStatus();
  TETRAD_CUDA_RANGE("copy to device");
  const Lease lease(*this, bytes >= kLargeBytes ? kept_ : 0);
  TETRAD_RETURN_IF_ERROR(context_.Enter());
  Slot& slot = *lease;
  absl::Status status;
  int64_t done = 0;
  for (size_t turn = 0; done < bytes && status.ok(); ++turn) {
    const Half& half = slot[turn % slot.size()];
    const int64_t piece = std::min(bytes - done, kHalfBytes);
    // What it held before is still on its way.
    if (turn >= slot.size()) status = context_.Synchronize(half.stream);
    if (status.ok()) status = source({half.memory, static_cast<size_t>(piece)});
    if (status.ok()) {
      status = TETRAD_CUDA(context_, MemcpyHtoDAsync, to + static_cast<CUdeviceptr>(done),
                           half.memory, static_cast<size_t>(piece), half.stream);
    }
    done += piece;
  }
  const absl::Status finished = Finish(slot);
  return status.ok() ? finished : status;
}

absl::Status Transfers::FromDevice(CUdeviceptr from, std::span<std::byte> out) {
  if (out.empty()) return absl::OkStatus();
  TETRAD_CUDA_RANGE("copy from device");
  const Lease lease(*this);
  TETRAD_RETURN_IF_ERROR(context_.Enter());
  Slot& slot = *lease;
  constexpr size_t kHalf = static_cast<size_t>(kHalfBytes);
  const size_t pieces = (out.size() + kHalf - 1) / kHalf;
  const auto piece_of = [&](size_t index) {
    return out.subspan(index * kHalf, std::min(kHalf, out.size() - index * kHalf));
  };
  absl::Status status;
  const auto begin = [&](size_t index) {
    const Half& half = slot[index % slot.size()];
    status.Update(TETRAD_CUDA(context_, MemcpyDtoHAsync, half.memory, from + index * kHalf,
                              piece_of(index).size(), half.stream));
  };
  begin(0);
  for (size_t index = 0; index < pieces && status.ok(); ++index) {
    if (index + 1 < pieces) begin(index + 1);
    const Half& half = slot[index % slot.size()];
    status.Update(context_.Synchronize(half.stream));
    if (status.ok()) std::memcpy(piece_of(index).data(), half.memory, piece_of(index).size());
  }
  if (!status.ok()) static_cast<void>(Finish(slot));  // nothing may still write to a half
  return status;
}

absl::Status Transfers::Clear(CUdeviceptr to, int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  const Lease lease(*this);
  TETRAD_RETURN_IF_ERROR(context_.Enter());
  const CUstream stream = (*lease).front().stream;
  TETRAD_RETURN_IF_ERROR(
      TETRAD_CUDA(context_, MemsetD8Async, to, 0, static_cast<size_t>(bytes), stream));
  return context_.Synchronize(stream);
}

}  // namespace tetrad::cuda
