// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/simulated_driver/kernels.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"

#include "engine/support/status_macros.h"
#include "kernels/aligned_buffer.h"
#include "kernels/cpu/grouped_gemm.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/portable.h"
#include "kernels/cuda/proof.h"
#include "kernels/cuda/rates.h"
#include "kernels/float16.h"
#include "kernels/random.h"

namespace tetrad::cuda::simulated {
namespace {

constexpr int kManyRegisters = 128;
constexpr int kFewRegisters = 32;
constexpr KernelFacts kKernels[] = {
    {Kernel::kPortableNvfp4,
     PortableEntry(ActivationType::kNvfp4),
     {sizeof(LaunchArguments)},
     kManyRegisters,
     true},
    {Kernel::kPortableFp16,
     PortableEntry(ActivationType::kFp16),
     {sizeof(LaunchArguments)},
     kManyRegisters,
     true},
    {Kernel::kPortableBf16,
     PortableEntry(ActivationType::kBf16),
     {sizeof(LaunchArguments)},
     kManyRegisters,
     true},
    {Kernel::kCompletion, kCompletionEntry, {sizeof(CompletionArguments)}, kFewRegisters, false},
    {Kernel::kProofFill, kProofFillEntry, {8, 8, 4, 4}, kFewRegisters, false},
    {Kernel::kProofCompare, kProofCompareEntry, {8, 8, 8, 8}, kFewRegisters, false},
    {Kernel::kReadRate, kReadRateEntry, {8, 8, 8}, kFewRegisters, false},
    {Kernel::kMmaRate, kMmaRateEntry, {8, 4}, kManyRegisters, false},
};

uint64_t GlobalTimer() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

CUdeviceptr Address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

// A launch's view of memory: remembers the first illegal access.
class View {
 public:
  View(const AddressSpace& space, std::string* why) : space_(space), why_(why) {}

  template <typename T>
  const T* Read(const T* address, int64_t count) {
    return reinterpret_cast<const T*>(At(Address(address), count * Size<T>(), false));
  }
  template <typename T>
  T* Write(T* address, int64_t count) {
    return reinterpret_cast<T*>(At(Address(address), count * Size<T>(), true));
  }
  bool ok() const { return ok_; }
  void Refuse(std::string_view why) {
    if (ok_) *why_ = why;
    ok_ = false;
  }

 private:
  template <typename T>
  static constexpr int64_t Size() {
    if constexpr (std::is_void_v<T>) {
      return 1;
    } else {
      return static_cast<int64_t>(sizeof(T));
    }
  }
  std::byte* At(CUdeviceptr address, int64_t bytes, bool write) {
    if (bytes < 0) Refuse("a negative size");
    if (!ok_) return nullptr;
    if (bytes == 0) return reinterpret_cast<std::byte*>(address);  // nothing is touched
    std::byte* const result = space_.At(address, static_cast<size_t>(bytes), write, why_);
    if (result == nullptr) ok_ = false;
    return result;
  }

  const AddressSpace& space_;
  std::string* const why_;
  bool ok_ = true;
};

// Elements from the first to the last that a group writes.
int64_t OutputExtent(const ProblemTypes& types, const GroupProblem& group) {
  const bool rows = types.c_layout == OutputLayout::kRowMajor;
  return rows ? int64_t{group.m - 1} * group.c_stride + group.n
              : int64_t{group.n - 1} * group.c_stride + group.m;
}

// `group` with device addresses, to one with host addresses.
GroupProblem OnHost(View& view, const ProblemTypes& types, const GroupProblem& group) {
  GroupProblem result = group;
  result.a = view.Read(group.a, ActivationBytes(types.a_type, group.m, group.k));
  if (types.a_type == ActivationType::kNvfp4) {
    result.a_scales =
        view.Read(group.a_scales, ScalePlaneBytes(types.a_scale_layout, group.m, group.k));
  }
  result.b = view.Read(group.b, CodeBytes(group.n, group.k));
  result.b_scales =
      view.Read(group.b_scales, ScalePlaneBytes(types.b_scale_layout, group.n, group.k));
  if (group.row_scale != nullptr) result.row_scale = view.Read(group.row_scale, group.m);
  result.c = view.Write(group.c, OutputExtent(types, group) * OutputElementBytes(types.c_type));
  return result;
}

// Device memory does not fault on a null base that nothing is read from, and
// arithmetic on it is the device's, not C++'s.
template <typename T>
T* Plus(T* base, int64_t bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(base) + static_cast<uintptr_t>(bytes));
}

GroupProblem FormGroup(const LaunchArguments& arguments, const GroupEntry& entry, float alpha) {
  GroupProblem group;
  group.a = Plus(arguments.a, entry.a);
  group.a_scales = Plus(arguments.a_scales, entry.a_scales);
  group.b = Plus(arguments.b, entry.b);
  group.b_scales = Plus(arguments.b_scales, entry.b_scales);
  group.c = Plus(arguments.c, entry.c);
  if (arguments.row_scale != nullptr) {
    group.row_scale = Plus(arguments.row_scale, entry.row * int64_t{sizeof(float)});
  }
  group.c_stride = entry.c_stride;
  group.m = entry.m;
  group.n = entry.n;
  group.k = entry.k;
  group.alpha = alpha;
  return group;
}

class Gemm {
 public:
  Gemm(const LaunchArguments& arguments, View& view) : arguments_(arguments), view_(view) {}

  void Run(int64_t ctas) {
    if (LaunchState* const state = view_.Write(arguments_.state, 1); state != nullptr) {
      state->begun_ns = GlobalTimer();
    }
    if (arguments_.group_count < 0) return view_.Refuse("a negative number of groups");
    groups_.resize(static_cast<size_t>(arguments_.group_count));
    if (arguments_.m_source == MSource::kHost) {
      RunTiles(ctas);
    } else {
      RunLiveGroups();
    }
  }
  // The first byte that was written, if any.
  std::byte* first_output() const { return first_output_; }

 private:
  void RunTiles(int64_t ctas) {
    const int32_t* const begin = view_.Read(arguments_.cta_begin, ctas + 1);
    if (begin == nullptr) return;
    for (int64_t cta = 0; cta < ctas; ++cta) {
      for (int32_t at = begin[cta]; at < begin[cta + 1]; ++at) {
        // One by one: what a table of no tiles points to is not read.
        const Tile* const tile = view_.Read(arguments_.tiles + at, 1);
        if (tile == nullptr) return;
        if (tile->group < 0 || tile->group >= arguments_.group_count) {
          return view_.Refuse(absl::StrCat("a tile of group ", tile->group));
        }
        FormOnce(tile->group);
        RunOne(*tile);
        if (!view_.ok()) return;
      }
    }
  }

  void FormOnce(int32_t g) {
    GroupProblem& group = groups_[static_cast<size_t>(g)];
    if (group.n != 0) return;
    const GroupEntry* const entry = view_.Read(arguments_.groups + g, 1);
    const float* const alpha = view_.Read(arguments_.alpha + g, 1);
    if (!view_.ok()) return;
    group = OnHost(view_, arguments_.types, FormGroup(arguments_, *entry, *alpha));
  }

  void RunLiveGroups() {
    DeviceMProblem problem;
    problem.m_source = arguments_.m_source;
    problem.groups = arguments_.group_count;
    problem.n = arguments_.n;
    problem.k = arguments_.k;
    problem.capacity_rows = arguments_.capacity_rows;
    const bool offsets = problem.m_source == MSource::kOffsets;
    problem.m_values = view_.Read(arguments_.m_values, problem.groups + (offsets ? 1 : 0));
    problem.alpha = view_.Read(arguments_.alpha, problem.groups);
    problem.a = arguments_.a;
    problem.a_scales = arguments_.a_scales;
    problem.b = arguments_.b;
    problem.b_scales = arguments_.b_scales;
    problem.c = arguments_.c;
    problem.row_scale = arguments_.row_scale;
    problem.c_stride = arguments_.c_stride;
    if (!view_.ok()) return;
    uint32_t error = 0;
    cpu::ResolveDeviceM(problem, arguments_.types, groups_, &error);
    if (LaunchState* const state = view_.Write(arguments_.state, 1); state != nullptr) {
      state->error_word |= error;
    }
    for (size_t g = 0; g < groups_.size() && view_.ok(); ++g) {
      if (groups_[g].m == 0) continue;
      groups_[g] = OnHost(view_, arguments_.types, groups_[g]);
      for (int32_t row = 0; row < groups_[g].m && view_.ok(); row += kPortableTileRows) {
        for (int32_t column = 0; column < groups_[g].n; column += kPortableTileColumns) {
          RunOne({static_cast<int32_t>(g), row, std::min(kPortableTileRows, groups_[g].m - row),
                  column, std::min(kPortableTileColumns, groups_[g].n - column)});
        }
      }
    }
  }

  void RunOne(const Tile& tile) {
    if (!view_.ok()) return;
    const GroupProblem& group = groups_[static_cast<size_t>(tile.group)];
    if (tile.row < 0 || tile.rows < 1 || tile.rows > kPortableTileRows || tile.column < 0 ||
        tile.columns < 1 || tile.columns > kPortableTileColumns) {
      return view_.Refuse("a tile that the kernel does not take");
    }
    cpu::RunTile(cpu::BestInstructionSet(), arguments_.types, group, tile, scratch_.bytes());
    if (first_output_ == nullptr) first_output_ = static_cast<std::byte*>(group.c);
  }

  const LaunchArguments& arguments_;
  View& view_;
  std::vector<GroupProblem> groups_;  // with host addresses once formed
  std::byte* first_output_ = nullptr;
  const AlignedBuffer scratch_{cpu::kScratchBytes};
};

void Complete(const CompletionArguments& arguments, View& view) {
  LaunchState* const state = view.Write(arguments.state, 1);
  if (arguments.depth == 0) return view.Refuse("completion records of depth 0");
  if (state == nullptr) return;
  ++state->launches;
  CompletionRecord* const record =
      view.Write(arguments.records + (state->launches - 1) % arguments.depth, 1);
  if (record == nullptr) return;
  record->error_word = state->error_word;
  record->device_ns = std::max<uint64_t>(1, GlobalTimer() - state->begun_ns);
  state->error_word = 0;
  std::atomic_ref(record->sequence).store(state->launches, std::memory_order_release);
}

uint16_t Moderate(ProofFill fill, uint64_t bits) {
  const float value = static_cast<float>(static_cast<int64_t>(bits % 4096) - 2048) * 0x1p-8f;
  return fill == ProofFill::kFp16 ? EncodeFp16(value) : EncodeBf16(value);
}

void Fill(uint8_t* out, int64_t bytes, uint32_t seed, ProofFill fill) {
  for (int64_t at = 0; at < bytes;) {
    const uint64_t bits = Random(uint64_t{seed} << 32 ^ static_cast<uint64_t>(at)).Next();
    uint8_t value[4];
    int64_t size = 1;
    if (fill == ProofFill::kCodes) {
      value[0] = static_cast<uint8_t>(bits);
    } else if (fill == ProofFill::kScales) {
      value[0] = static_cast<uint8_t>(0x30 + bits % 16);
    } else if (fill == ProofFill::kFp32) {
      const float number = 0.5f + static_cast<float>(bits % 4096) * 0x1p-12f;
      std::memcpy(value, &number, size = 4);
    } else {
      const uint16_t number = Moderate(fill, bits);
      std::memcpy(value, &number, size = 2);
    }
    for (int64_t i = 0; i < size && at < bytes; ++i) out[at++] = value[i];
  }
}

void Compare(const uint8_t* x, const uint8_t* y, int64_t bytes, uint64_t* different) {
  uint64_t count = 0;
  for (int64_t i = 0; i < bytes; ++i) count += x[i] != y[i] ? 1 : 0;
  std::atomic_ref(*different).fetch_add(count, std::memory_order_relaxed);
}

void ReadAll(const uint8_t* from, int64_t bytes, uint32_t* sink) {
  uint32_t sum = 0;
  for (int64_t i = 0; i < bytes; i += 16) sum += from[i];
  if (bytes < 0) *sink = sum;
}

}  // namespace

const KernelFacts* FindKernel(std::string_view entry) {
  for (const KernelFacts& facts : kKernels) {
    if (entry == facts.entry) return &facts;
  }
  return nullptr;
}

template <typename T>
T KernelLaunch::Parameter(size_t index) const {
  T value;
  TETRAD_CHECK(parameters[index].size() == sizeof(T));
  std::memcpy(&value, parameters[index].data(), sizeof(T));
  return value;
}

std::vector<CUdeviceptr> KernelLaunch::Addresses() const {
  if (facts->computes) {
    const auto a = Parameter<LaunchArguments>(0);
    std::vector<CUdeviceptr> all;
    for (const void* address :
         {static_cast<const void*>(a.a), static_cast<const void*>(a.a_scales),
          static_cast<const void*>(a.b), static_cast<const void*>(a.b_scales),
          static_cast<const void*>(a.c), static_cast<const void*>(a.alpha),
          static_cast<const void*>(a.row_scale), static_cast<const void*>(a.m_values),
          static_cast<const void*>(a.groups), static_cast<const void*>(a.tiles),
          static_cast<const void*>(a.cta_begin), static_cast<const void*>(a.state)}) {
      all.push_back(Address(address));
    }
    return all;
  }
  switch (facts->kernel) {
    case Kernel::kCompletion: {
      const auto a = Parameter<CompletionArguments>(0);
      return {Address(a.state), Address(a.records)};
    }
    case Kernel::kProofCompare:
      return {Parameter<CUdeviceptr>(0), Parameter<CUdeviceptr>(1), Parameter<CUdeviceptr>(3)};
    case Kernel::kReadRate:
      return {Parameter<CUdeviceptr>(0), Parameter<CUdeviceptr>(2)};
    default:
      return {Parameter<CUdeviceptr>(0)};
  }
}

CUresult RunKernel(const KernelLaunch& launch, const AddressSpace& space, bool spoil,
                   std::string* why) {
  View view(space, why);
  const int64_t ctas = int64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  if (launch.facts->computes) {
    const auto arguments = launch.Parameter<LaunchArguments>(0);
    Gemm gemm(arguments, view);
    gemm.Run(ctas);
    if (spoil && gemm.first_output() != nullptr) *gemm.first_output() ^= std::byte{1};
  } else if (launch.facts->kernel == Kernel::kCompletion) {
    Complete(launch.Parameter<CompletionArguments>(0), view);
  } else if (launch.facts->kernel == Kernel::kProofFill) {
    const auto bytes = launch.Parameter<int64_t>(1);
    uint8_t* const out = view.Write(launch.Parameter<uint8_t*>(0), bytes);
    if (view.ok()) Fill(out, bytes, launch.Parameter<uint32_t>(2), launch.Parameter<ProofFill>(3));
  } else if (launch.facts->kernel == Kernel::kProofCompare) {
    const auto bytes = launch.Parameter<int64_t>(2);
    const uint8_t* const x = view.Read(launch.Parameter<const uint8_t*>(0), bytes);
    const uint8_t* const y = view.Read(launch.Parameter<const uint8_t*>(1), bytes);
    uint64_t* const different = view.Write(launch.Parameter<uint64_t*>(3), 1);
    if (view.ok()) Compare(x, y, bytes, different);
  } else if (launch.facts->kernel == Kernel::kReadRate) {
    const auto bytes = launch.Parameter<int64_t>(1);
    const uint8_t* const from = view.Read(launch.Parameter<const uint8_t*>(0), bytes);
    uint32_t* const sink = view.Write(launch.Parameter<uint32_t*>(2), 1);
    if (view.ok()) ReadAll(from, bytes, sink);
  } else {
    const auto repeats = launch.Parameter<int32_t>(1);
    uint32_t* const sink = view.Write(launch.Parameter<uint32_t*>(0), 1);
    if (view.ok() && repeats == 0) *sink = kMmaFlopsPerRepeat;
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(repeats, 1 << 20)));
  }
  return view.ok() ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

}  // namespace tetrad::cuda::simulated
