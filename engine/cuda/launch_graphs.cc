// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/launch_graphs.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "engine/cuda/ranges.h"
#include "engine/support/error_detail.h"

namespace tetrad::cuda {

LaunchGraphs::LaunchGraphs(CudaContext& context, const KernelLibrary& library, OwnMemory& memory,
                           const Options& options)
    : context_(context), library_(library), memory_(memory), options_(options) {
  stats_.limit_bytes = options.limit_bytes;
}

LaunchGraphs::~LaunchGraphs() {
  const bool healthy = context_.Enter().ok();
  const CudaDriver& driver = context_.driver();
  for (auto& idle : idle_) {
    for (auto& graph : idle) Destroy(std::move(graph));
    idle.clear();
  }
  TETRAD_CHECK(stats_.graphs == 0 || !healthy);
  if (!healthy) return;
  for (const Template& made : templates_) {
    if (made.graph != nullptr) context_.Release(driver.GraphDestroy(made.graph), "cuGraphDestroy");
  }
  for (const Slab& slab : slabs_) {
    context_.Release(driver.MemFreeHost(slab.records), "cuMemFreeHost");
  }
  if (stream_ != nullptr) context_.Release(driver.StreamDestroy(stream_), "cuStreamDestroy");
}

LaunchGraphs::Stats LaunchGraphs::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

LaunchState* LaunchGraphs::StateOf(uint32_t place) const {
  return reinterpret_cast<LaunchState*>(slabs_[place / kPlacesPerSlab].states.address()) +
         place % kPlacesPerSlab;
}

CompletionArguments LaunchGraphs::CompletionOf(uint32_t place) const {
  CompletionArguments arguments;
  arguments.state = StateOf(place);
  arguments.records =
      reinterpret_cast<CompletionRecord*>(slabs_[place / kPlacesPerSlab].records_on_device) +
      place % kPlacesPerSlab * options_.depth;
  arguments.depth = options_.depth;
  return arguments;
}

absl::Status LaunchGraphs::MakeSlab() {
  Slab slab;
  TETRAD_ASSIGN_OR_RETURN(slab.states, memory_.Allocate(kPlacesPerSlab * sizeof(LaunchState)));
  const size_t bytes = kPlacesPerSlab * options_.depth * sizeof(CompletionRecord);
  void* records = nullptr;
  TETRAD_RETURN_IF_ERROR(
      context_.Check(context_.driver().MemHostAlloc(
                         &records, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
                     "cuMemHostAlloc", absl::StrCat(bytes, " bytes of page-locked host memory")));
  absl::Cleanup free = [&] {
    context_.Release(context_.driver().MemFreeHost(records), "cuMemFreeHost");
  };
  TETRAD_RETURN_IF_ERROR(
      TETRAD_CUDA(context_, MemHostGetDevicePointer, &slab.records_on_device, records, 0));
  slab.records = static_cast<CompletionRecord*>(records);
  std::uninitialized_fill_n(slab.records, kPlacesPerSlab * options_.depth, CompletionRecord{});
  const uint32_t first = static_cast<uint32_t>(place_launches_.size());
  slabs_.reserve(slabs_.size() + 1);
  free_places_.reserve(first + kPlacesPerSlab);  // for all to be free at once
  place_launches_.resize(first + kPlacesPerSlab);
  slabs_.push_back(std::move(slab));
  for (uint32_t i = kPlacesPerSlab; i > 0; --i) free_places_.push_back(first + i - 1);
  std::move(free).Cancel();
  return absl::OkStatus();
}

GemmLaunch LaunchGraphs::IdleLaunch(GraphKind kind, const Template& made, uint32_t place) const {
  GemmLaunch launch;
  launch.kind = kind;
  const CUdeviceptr tables = made.idle_tables.address();
  if (kind < GraphKind::kHopper) {
    const auto type = static_cast<ActivationType>(kind);
    LaunchArguments arguments;
    arguments.cta_begin = reinterpret_cast<const int32_t*>(tables);
    arguments.types.a_type = type;
    launch.Add({.kernel = &library_.gemm(type), .arguments = arguments});
  } else {
    const bool prepared = kind != GraphKind::kHopper;
    sm90::GemmArguments arguments;
    arguments.tiles = reinterpret_cast<const sm90::TileEntry*>(tables);
    arguments.tiles_per_cta = 1;
    arguments.begins = !prepared;
    if (kind == GraphKind::kHopperPreparedLive) {
      launch.Add({.kernel = &library_.snapshot(), .arguments = sm90::SnapshotArguments()});
    }
    if (prepared) {
      sm90::PrepareArguments no_rows;
      no_rows.pitch = kKMultiple;
      no_rows.begins = launch.count == 0;
      launch.Add({.kernel = &library_.prepare(), .arguments = no_rows});
    }
    launch.Add({.kernel = &library_.hopper_gemm(ActivationType::kFp16, sm90::kInstances[0]),
                .arguments = arguments});
  }
  launch.SetState(StateOf(place));
  return launch;
}

absl::Status LaunchGraphs::MakeTemplate(GraphKind kind, Template& made) {
  if (stream_ == nullptr) {
    TETRAD_RETURN_IF_ERROR(
        TETRAD_CUDA(context_, StreamCreateWithPriority, &stream_, CU_STREAM_NON_BLOCKING, 0));
  }
  if (free_places_.empty()) TETRAD_RETURN_IF_ERROR(MakeSlab());
  // One CTA without tiles: `cta_begin` of {0, 0}, or a list that ends at once.
  struct {
    int32_t cta_begin[4] = {};
    sm90::TileEntry end;
  } const tables;
  const auto bytes = kind < GraphKind::kHopper ? std::as_bytes(std::span(tables.cta_begin, 2))
                                               : std::as_bytes(std::span(&tables.end, 1));
  TETRAD_ASSIGN_OR_RETURN(made.idle_tables, memory_.Allocate(static_cast<int64_t>(bytes.size())));
  absl::Status captured = memory_.Write(made.idle_tables, 0, bytes);
  if (captured.ok()) captured = Capture(kind, free_places_.back(), made);
  if (captured.ok()) return captured;
  if (made.graph != nullptr) {
    context_.Release(context_.driver().GraphDestroy(made.graph), "cuGraphDestroy");
  }
  made = Template();
  return captured;
}

absl::Status LaunchGraphs::Capture(GraphKind kind, uint32_t place, Template& made) {
  const Kernel& completion = library_.completion();
  GemmLaunch launch = IdleLaunch(kind, made, place);
  const CompletionArguments complete = CompletionOf(place);
  const auto launch_all = [&] {
    TETRAD_RETURN_IF_ERROR(LaunchOn(context_, stream_, launch));
    return LaunchKernel(context_, completion, 1, stream_, complete);
  };
  // The driver may load code at a first launch, which must not happen in a capture.
  const absl::Status warm = launch_all();
  // Also if only some of them were launched: the caller gives back what they read.
  const absl::Status done = context_.Synchronize(stream_);
  TETRAD_RETURN_IF_ERROR(warm);
  ++place_launches_[place];
  TETRAD_RETURN_IF_ERROR(done);
  TETRAD_RETURN_IF_ERROR(
      TETRAD_CUDA(context_, StreamBeginCapture, stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  const absl::Status launched = launch_all();
  const absl::Status ended = TETRAD_CUDA(context_, StreamEndCapture, stream_, &made.graph);
  TETRAD_RETURN_IF_ERROR(launched);
  TETRAD_RETURN_IF_ERROR(ended);
  ++stats_.captures;
  CUgraphNode nodes[kMostGemmKernels + 1];
  size_t count = std::size(nodes);
  TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(context_, GraphGetNodes, made.graph, nodes, &count));
  size_t found = 0;
  for (size_t i = 0; i < std::min(count, std::size(nodes)); ++i) {
    CUDA_KERNEL_NODE_PARAMS node{};
    TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(context_, GraphKernelNodeGetParams, nodes[i], &node));
    CUgraphNode* place_of = node.func == completion.function ? &made.completion : nullptr;
    for (size_t k = 0; k < launch.count; ++k) {
      if (node.func == launch.calls[k].kernel->function) place_of = &made.kernels[k];
    }
    if (place_of == nullptr || *place_of != nullptr) break;
    *place_of = nodes[i];
    ++found;
  }
  if (count != launch.count + 1 || found != count) {
    return ReasonError(Reason::kInternal,
                       absl::StrCat("a captured launch has ", count, " nodes, not ", launch.count,
                                    " kernels and their completion"));
  }
  return absl::OkStatus();
}

absl::Status LaunchGraphs::SetNode(const LaunchGraph& graph, CUgraphNode node, const Kernel& kernel,
                                   uint32_t grid, void* arguments) {
  CUDA_KERNEL_NODE_PARAMS parameters{};
  parameters.func = kernel.function;
  parameters.gridDimX = grid;
  parameters.gridDimY = parameters.gridDimZ = 1;
  parameters.blockDimX = kernel.threads;
  parameters.blockDimY = parameters.blockDimZ = 1;
  parameters.sharedMemBytes = kernel.shared_bytes;
  parameters.kernelParams = &arguments;
  return TETRAD_CUDA(context_, GraphExecKernelNodeSetParams, graph.exec, node, &parameters);
}

absl::Status LaunchGraphs::SetLaunch(LaunchGraph& graph, GemmLaunch launch) {
  TETRAD_CHECK(launch.kind == graph.kind);
  launch.SetState(graph.state);
  // Templates are not changed once a graph of them exists.
  const Template& from = templates_[static_cast<size_t>(graph.kind)];
  for (size_t i = 0; i < launch.count; ++i) {
    KernelCall& call = launch.calls[i];
    TETRAD_RETURN_IF_ERROR(
        SetNode(graph, from.kernels[i], *call.kernel, call.grid, call.address()));
  }
  return absl::OkStatus();
}

absl::Status LaunchGraphs::Instantiate(LaunchGraph& graph) {
  const Template& from = templates_[static_cast<size_t>(graph.kind)];
  TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(context_, GraphInstantiate, &graph.exec, from.graph, 0));
  ++stats_.captures;
  TETRAD_RETURN_IF_ERROR(SetLaunch(graph, IdleLaunch(graph.kind, from, graph.place)));
  CompletionArguments complete = CompletionOf(graph.place);
  TETRAD_RETURN_IF_ERROR(SetNode(graph, from.completion, library_.completion(), 1, &complete));
  TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(context_, GraphUpload, graph.exec, stream_));
  return context_.Synchronize(stream_);
}

absl::StatusOr<std::unique_ptr<LaunchGraph>> LaunchGraphs::Make(GraphKind kind) {
  TETRAD_CUDA_RANGE("make graph");
  Template& from = templates_[static_cast<size_t>(kind)];
  if (from.graph == nullptr) TETRAD_RETURN_IF_ERROR(MakeTemplate(kind, from));
  // At the limit one graph has to go for each that comes; the driver then uses
  // its memory again.
  if (stats_.bytes >= options_.limit_bytes && !DestroyLongestIdle()) {
    return ReasonError(Reason::kPlanBudget,
                       absl::StrCat("graph_bytes: ", stats_.graphs, " graphs in use take ",
                                    stats_.bytes, " bytes, the limit is ", options_.limit_bytes));
  }
  if (free_places_.empty()) TETRAD_RETURN_IF_ERROR(MakeSlab());
  auto& idle = idle_[static_cast<size_t>(kind)];
  const auto graphs = static_cast<size_t>(stats_.graphs) + 1;
  if (idle.capacity() < graphs) idle.reserve(2 * graphs);
  auto graph = std::make_unique<LaunchGraph>();
  graph->kind = kind;
  graph->place = free_places_.back();
  graph->state = StateOf(graph->place);
  graph->records = slabs_[graph->place / kPlacesPerSlab].records +
                   graph->place % kPlacesPerSlab * options_.depth;
  graph->launches = place_launches_[graph->place];
  free_places_.pop_back();
  ++stats_.graphs;
  const std::lock_guard lock(context_.memory_mutex());
  const auto before = context_.FreeBytes();
  absl::Status made = before.status();
  if (made.ok()) made = Instantiate(*graph);
  const auto after = context_.FreeBytes();
  if (!before.ok() || !after.ok()) {
    // What it takes is not known, so it cannot be kept; and it was not counted.
    Drop(*graph);
    return made.ok() ? after.status() : made;
  }
  stats_.bytes += std::max<int64_t>(*before - *after, 0);
  if (made.ok()) return graph;
  Destroy(std::move(graph));
  return made;
}

void LaunchGraphs::Drop(LaunchGraph& graph) {
  --stats_.graphs;
  place_launches_[graph.place] = graph.launches;
  free_places_.push_back(graph.place);
  if (graph.exec == nullptr || !context_.health().ok()) return;
  context_.Release(context_.driver().GraphExecDestroy(graph.exec), "cuGraphExecDestroy");
}

// Needs the memory mutex where a graph is destroyed while others may allocate;
// then what is given back shows in the free bytes.
void LaunchGraphs::Destroy(std::unique_ptr<LaunchGraph> graph) {
  const auto before = context_.FreeBytes();
  Drop(*graph);
  const auto after = context_.FreeBytes();
  if (before.ok() && after.ok()) {
    stats_.bytes = std::max<int64_t>(stats_.bytes - std::max<int64_t>(*after - *before, 0), 0);
  }
}

bool LaunchGraphs::DestroyLongestIdle() {
  auto* longest = &idle_.front();
  for (auto& idle : idle_) {
    if (idle.empty()) continue;
    if (longest->empty() || idle.front()->idle_since < longest->front()->idle_since) {
      longest = &idle;
    }
  }
  if (longest->empty()) return false;
  const std::lock_guard lock(context_.memory_mutex());
  Destroy(std::move(longest->front()));
  longest->erase(longest->begin());
  return true;
}

absl::StatusOr<std::unique_ptr<LaunchGraph>> LaunchGraphs::Take(GraphKind kind) {
  TETRAD_RETURN_IF_ERROR(context_.Enter());
  std::lock_guard lock(mutex_);
  auto& idle = idle_[static_cast<size_t>(kind)];
  if (idle.empty()) return Make(kind);
  std::unique_ptr<LaunchGraph> graph = std::move(idle.back());
  idle.pop_back();
  return graph;
}

void LaunchGraphs::Return(std::unique_ptr<LaunchGraph> graph) {
  // Its last launch may be over before the thread that made it has let go of it.
  { const std::lock_guard launched(graph->launching); }
  std::lock_guard lock(mutex_);
  graph->idle_since = ++returns_;
  idle_[static_cast<size_t>(graph->kind)].push_back(std::move(graph));
}

int64_t LaunchGraphs::ReleaseIdle() {
  if (!context_.Enter().ok()) return 0;
  std::lock_guard lock(mutex_);
  const int64_t before = stats_.bytes;
  while (DestroyLongestIdle()) {
  }
  return before - stats_.bytes;
}

}  // namespace tetrad::cuda
