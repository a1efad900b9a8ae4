// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/kernels/library_peers.h"

#include <algorithm>
#include <utility>

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

#include "bench/kernels/grouped_data.h"
#include "bench/kernels/rotation.h"

namespace tetrad::bars {
namespace {

constexpr size_t kMostStreams = 16;
constexpr int kRounds = 15, kReplays = 2;  // together at least 30 replays
constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;
constexpr int64_t kSamples = 64;
constexpr uint64_t kSampleSeed = 9;
// Only how many calls a graph makes follows from it.
constexpr double kAssumedBytesPerUs = 5e6;

// The engine makes no stream wait for another, so its table of the driver lacks this.
using StreamWaitEvent = decltype(&::cuStreamWaitEvent);

}  // namespace

// Streams that begin after what the main stream was given and end before what comes.
class LibraryPeers::Streams {
 public:
  Streams(Gpu& gpu, const Cublas& cublas) : gpu_(gpu), cublas_(cublas) {}
  ~Streams() {
    if (!gpu_.context().Enter().ok()) return;
    const cuda::CudaDriver& driver = gpu_.context().driver();
    for (const One& one : all_) {
      if (one.handle != nullptr) cublas_.Destroy(one.handle);
      if (one.event != nullptr)
        gpu_.context().Release(driver.EventDestroy(one.event), "cuEventDestroy");
      if (one.stream != nullptr)
        gpu_.context().Release(driver.StreamDestroy(one.stream), "cuStreamDestroy");
    }
    if (begin_ != nullptr) gpu_.context().Release(driver.EventDestroy(begin_), "cuEventDestroy");
  }
  Streams(const Streams&) = delete;

  absl::Status Make(size_t count) {
    void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    wait_ = library == nullptr
                ? nullptr
                : reinterpret_cast<StreamWaitEvent>(::dlsym(library, "cuStreamWaitEvent"));
    if (wait_ == nullptr) return absl::FailedPreconditionError("no cuStreamWaitEvent");
    cuda::CudaContext& context = gpu_.context();
    TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(context, EventCreate, &begin_, CU_EVENT_DISABLE_TIMING));
    for (size_t i = 0; i < count; ++i) {
      One& one = all_.emplace_back();
      TETRAD_RETURN_IF_ERROR(
          TETRAD_CUDA(context, StreamCreateWithPriority, &one.stream, CU_STREAM_NON_BLOCKING, 0));
      TETRAD_RETURN_IF_ERROR(
          TETRAD_CUDA(context, EventCreate, &one.event, CU_EVENT_DISABLE_TIMING));
      TETRAD_ASSIGN_OR_RETURN(one.handle, cublas_.Create());
      TETRAD_RETURN_IF_ERROR(cublas_.SetStream(one.handle, one.stream));
      TETRAD_ASSIGN_OR_RETURN(one.workspace, gpu_.Allocate(kWorkspaceBytes));
      TETRAD_RETURN_IF_ERROR(
          cublas_.SetWorkspace(one.handle, one.workspace.address(), kWorkspaceBytes));
    }
    return absl::OkStatus();
  }

  absl::Status Multiply(CUstream main, ActivationType type,
                        const std::vector<CublasProduct>& products) {
    cuda::CudaContext& context = gpu_.context();
    TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(context, EventRecord, begin_, main));
    for (const One& one : all_) TETRAD_RETURN_IF_ERROR(Wait(one.stream, begin_));
    for (size_t i = 0; i < products.size(); ++i) {
      TETRAD_RETURN_IF_ERROR(cublas_.Multiply(all_[i % all_.size()].handle, type, products[i]));
    }
    for (const One& one : all_) {
      TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(context, EventRecord, one.event, one.stream));
      TETRAD_RETURN_IF_ERROR(Wait(main, one.event));
    }
    return absl::OkStatus();
  }

 private:
  struct One {
    CUstream stream = nullptr;
    CUevent event = nullptr;
    Cublas::Handle handle = nullptr;
    GpuBuffer workspace;
  };
  absl::Status Wait(CUstream stream, CUevent event) {
    return gpu_.context().Check(wait_(stream, event, 0), "cuStreamWaitEvent");
  }

  Gpu& gpu_;
  const Cublas& cublas_;
  StreamWaitEvent wait_ = nullptr;
  CUevent begin_ = nullptr;
  std::vector<One> all_;
};

LibraryPeers::LibraryPeers(Gpu& gpu, const Cublas& cublas) : gpu_(gpu), cublas_(cublas) {}

absl::StatusOr<std::unique_ptr<LibraryPeers>> LibraryPeers::Make(Gpu& gpu, const Cublas& cublas,
                                                                 const ShapeSets& sets,
                                                                 const TimedProblem& problem) {
  std::unique_ptr<LibraryPeers> peers(new LibraryPeers(gpu, cublas));
  TETRAD_RETURN_IF_ERROR(gpu.context().Enter());
  TETRAD_RETURN_IF_ERROR(peers->Place(sets, problem));
  TETRAD_RETURN_IF_ERROR(peers->CaptureStreams());
  TETRAD_RETURN_IF_ERROR(peers->Check(sets, problem, peers->streams_graph_));
  if (!cublas.has_grouped()) return peers;
  TETRAD_RETURN_IF_ERROR(peers->CaptureGrouped());
  TETRAD_RETURN_IF_ERROR(peers->Check(sets, problem, peers->grouped_graph_));
  return peers;
}

LibraryPeers::~LibraryPeers() {
  if (!gpu_.context().Enter().ok() || !gpu_.Synchronize().ok()) return;
  if (handle_ != nullptr) cublas_.Destroy(handle_);
}

absl::Status LibraryPeers::Place(const ShapeSets& sets, const TimedProblem& problem) {
  const Plan& exact = problem.exact_plan();
  type_ = exact.signature.types.a_type;
  if (type_ == ActivationType::kNvfp4) return absl::UnimplementedError("peers take 16 bits");
  const auto b = Dequantise(type_, sets.image().codes, sets.image().scales, sets.threads());
  double bytes = 0;
  for (const GroupShape& g : exact.signature.groups) {
    if (g.m > 0) bytes += 2.0 * (1.0 * g.n * g.k + 1.0 * g.m * g.k + 1.0 * g.m * g.n);
  }
  const int count = SetsFor(bytes);
  calls_ = CallsFor(count, bytes / kAssumedBytesPerUs);
  for (int i = 0; i < count; ++i) {
    Set& set = operands_.emplace_back();
    TETRAD_ASSIGN_OR_RETURN(set.a, gpu_.Place(problem.image().a));
    TETRAD_ASSIGN_OR_RETURN(set.b, gpu_.Place(b));
    TETRAD_ASSIGN_OR_RETURN(set.c, gpu_.Allocate(exact.layout.c_bytes));
    CUdeviceptr group_b = set.b.address();
    for (size_t g = 0; g < exact.signature.groups.size(); ++g) {
      const GroupShape& shape = exact.signature.groups[g];
      const GroupOffsets& at = exact.layout.groups[g];
      if (shape.m > 0) {
        set.products.push_back({.m = shape.m,
                                .n = shape.n,
                                .k = shape.k,
                                .a = set.a.address() + static_cast<CUdeviceptr>(at.a),
                                .b = group_b,
                                .c = set.c.address() + static_cast<CUdeviceptr>(at.c)});
      }
      group_b += static_cast<CUdeviceptr>(shape.n) * static_cast<CUdeviceptr>(shape.k) * 2;
    }
    std::stable_sort(set.products.begin(), set.products.end(),
                     [](const CublasProduct& x, const CublasProduct& y) { return x.m > y.m; });
  }
  return absl::OkStatus();
}

absl::Status LibraryPeers::CaptureStreams() {
  const size_t groups = operands_.front().products.size();
  streams_ = std::make_unique<Streams>(gpu_, cublas_);
  TETRAD_RETURN_IF_ERROR(streams_->Make(std::min(groups, kMostStreams)));
  const auto once = [&](CUstream stream, const Set& set) {
    return streams_->Multiply(stream, type_, set.products);
  };
  TETRAD_RETURN_IF_ERROR(once(gpu_.stream(), operands_.front()));  // loads what it needs
  TETRAD_RETURN_IF_ERROR(gpu_.Synchronize());
  TETRAD_ASSIGN_OR_RETURN(streams_graph_, gpu_.Capture([&](CUstream stream) {
    for (int call = 0; call < calls_; ++call) {
      TETRAD_RETURN_IF_ERROR(once(stream, operands_[static_cast<size_t>(call) % operands_.size()]));
    }
    return absl::OkStatus();
  }));
  return absl::OkStatus();
}

absl::Status LibraryPeers::CaptureGrouped() {
  TETRAD_ASSIGN_OR_RETURN(handle_, cublas_.Create());
  TETRAD_RETURN_IF_ERROR(cublas_.SetStream(handle_, gpu_.stream()));
  TETRAD_ASSIGN_OR_RETURN(workspace_, gpu_.Allocate(kWorkspaceBytes));
  TETRAD_RETURN_IF_ERROR(cublas_.SetWorkspace(handle_, workspace_.address(), kWorkspaceBytes));
  for (Set& set : operands_) {
    std::vector<CUdeviceptr> pointers;
    for (const CublasProduct& product : set.products) pointers.push_back(product.b);
    for (const CublasProduct& product : set.products) pointers.push_back(product.a);
    for (const CublasProduct& product : set.products) pointers.push_back(product.c);
    TETRAD_ASSIGN_OR_RETURN(set.pointers, gpu_.Place(std::as_bytes(std::span(pointers))));
  }
  const auto once = [&](const Set& set) {
    return cublas_.MultiplyGrouped(handle_, type_, set.products, set.pointers.address());
  };
  TETRAD_RETURN_IF_ERROR(once(operands_.front()));
  TETRAD_RETURN_IF_ERROR(gpu_.Synchronize());
  TETRAD_ASSIGN_OR_RETURN(grouped_graph_, gpu_.Capture([&](CUstream) {
    for (int call = 0; call < calls_; ++call) {
      TETRAD_RETURN_IF_ERROR(once(operands_[static_cast<size_t>(call) % operands_.size()]));
    }
    return absl::OkStatus();
  }));
  return absl::OkStatus();
}

absl::Status LibraryPeers::Check(const ShapeSets& sets, const TimedProblem& problem,
                                 const GpuGraph& graph) {
  // Outputs of BF16 are not looked at: the sample speaks FP16.
  if (type_ != ActivationType::kFp16) return absl::OkStatus();
  const Plan& exact = problem.exact_plan();
  Set& set = operands_.back();
  std::vector<std::byte> output(static_cast<size_t>(exact.layout.c_bytes));
  TETRAD_RETURN_IF_ERROR(set.c.Write(output));
  TETRAD_RETURN_IF_ERROR(gpu_.Time(graph).status());
  TETRAD_RETURN_IF_ERROR(set.c.Read(output));
  std::string first;
  const int64_t wrong =
      CountWrong(exact, sets.image(), problem.image(), output, kSamples, kSampleSeed, first);
  if (wrong == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("a peer is wrong: ", first));
}

absl::StatusOr<double> LibraryPeers::Time(const GpuGraph& graph) {
  TETRAD_ASSIGN_OR_RETURN(const double us, gpu_.Time(graph));
  return us / calls_;
}

absl::StatusOr<LibraryRatios> TimeLibraryPeers(TimedProblem& ours, LibraryPeers& peers) {
  LibraryRatios ratios;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> our_us, streams_us, grouped_us;
    for (int replay = 0; replay < kReplays; ++replay) {
      TETRAD_ASSIGN_OR_RETURN(our_us.emplace_back(), ours.ColdUs());
      TETRAD_ASSIGN_OR_RETURN(streams_us.emplace_back(), peers.StreamsUs());
      if (!peers.has_grouped()) continue;
      TETRAD_ASSIGN_OR_RETURN(grouped_us.emplace_back(), peers.GroupedUs());
    }
    ratios.streams.Add(streams_us, our_us);
    if (peers.has_grouped()) ratios.grouped.Add(grouped_us, our_us);
    ratios.ours_us.insert(ratios.ours_us.end(), our_us.begin(), our_us.end());
  }
  return ratios;
}

}  // namespace tetrad::bars
