// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// LaunchGraphs: instantiated CUDA graphs, each the kernels of a GemmLaunch and the
// completion kernel after them.
//
// A graph depends on the kind of launch alone: function, grid, tables and addresses are
// parameters of its nodes and can be set anew in about a microsecond while it is idle.
// So each kind is captured once, when it is first used, every graph of it is
// instantiated from that one capture, and one that a binding gives back serves
// any other plan of the same kind. Nothing that comes and goes (plans, blocks,
// weights) needs a capture.
//
// Bytes are what the driver's free memory fell by at instantiations, less what it
// rose by at destructions: the driver takes memory for graphs in large pieces, so
// most graphs cost nothing and some a piece. Idle graphs are kept, and destroyed,
// longest idle first, when the limit or a lack of memory asks for it.
//
// Thread-safe, but a graph is its holder's alone.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/cuda/context.h"
#include "engine/cuda/gemm_launch.h"
#include "engine/cuda/kernel_library.h"
#include "engine/cuda/own_memory.h"
#include "kernels/cuda/launch.h"

namespace tetrad::cuda {

// One graph. Its launches run one after the other.
struct LaunchGraph {
  CUgraphExec exec = nullptr;
  GraphKind kind = GraphKind::kPortableNvfp4;
  LaunchState* state = nullptr;               // device address
  const CompletionRecord* records = nullptr;  // host address of `depth` of them
  uint32_t place = 0;                         // of state and records
  uint64_t idle_since = 0;                    // a count, not a time
  std::mutex launching;
  uint64_t launches = 0;  // of this place since it exists; guarded by launching
};

class LaunchGraphs {
 public:
  struct Options {
    uint32_t depth = 64;  // launches of a graph that can be under way
    int64_t limit_bytes = 256 << 20;
  };
  LaunchGraphs(CudaContext& context, const KernelLibrary& library, OwnMemory& memory,
               const Options& options);
  ~LaunchGraphs();  // every graph is back

  // RESOURCE_EXHAUSTED when graphs in use take up the limit or memory lacks.
  absl::StatusOr<std::unique_ptr<LaunchGraph>> Take(GraphKind kind);
  void Return(std::unique_ptr<LaunchGraph> graph);
  // For launches of the graph from now on; of its kind. The state is set here.
  absl::Status SetLaunch(LaunchGraph& graph, GemmLaunch launch);
  // Destroys idle ones; returns their bytes.
  int64_t ReleaseIdle();

  struct Stats {
    int64_t graphs = 0;
    int64_t bytes = 0;
    int64_t limit_bytes = 0;
    int64_t captures = 0;  // captures and instantiations
  };
  Stats stats() const;
  uint32_t depth() const { return options_.depth; }

 private:
  // The capture of one kind.
  struct Template {
    CUgraph graph = nullptr;
    std::array<CUgraphNode, kMostGemmKernels> kernels{};  // of GemmLaunch::kernels()
    CUgraphNode completion = nullptr;
    OwnBlock idle_tables;  // of a launch that computes nothing
  };
  // Records and states are made for this many graphs at a time.
  static constexpr uint32_t kPlacesPerSlab = 16;
  struct Slab {
    CompletionRecord* records = nullptr;
    CUdeviceptr records_on_device = 0;
    OwnBlock states;
  };

  // All below need mutex_.
  absl::Status MakeTemplate(GraphKind kind, Template& made);
  absl::Status Capture(GraphKind kind, uint32_t place, Template& made);
  absl::Status MakeSlab();
  // Computes nothing.
  GemmLaunch IdleLaunch(GraphKind kind, const Template& made, uint32_t place) const;
  CompletionArguments CompletionOf(uint32_t place) const;
  LaunchState* StateOf(uint32_t place) const;
  absl::StatusOr<std::unique_ptr<LaunchGraph>> Make(GraphKind kind);
  absl::Status Instantiate(LaunchGraph& graph);
  void Destroy(std::unique_ptr<LaunchGraph> graph);
  // Destroys without accounting for its bytes.
  void Drop(LaunchGraph& graph);
  bool DestroyLongestIdle();
  absl::Status SetNode(const LaunchGraph& graph, CUgraphNode node, const Kernel& kernel,
                       uint32_t grid, void* arguments);

  CudaContext& context_;
  const KernelLibrary& library_;
  OwnMemory& memory_;
  const Options options_;
  mutable std::mutex mutex_;   // guards all below
  CUstream stream_ = nullptr;  // for captures and uploads
  std::array<Template, kGraphKinds> templates_;
  std::vector<Slab> slabs_;
  std::vector<uint32_t> free_places_;
  std::vector<uint64_t> place_launches_;  // so far, of places whose graph is gone
  // Longest idle first; room for every graph, so that Return() cannot fail.
  std::array<std::vector<std::unique_ptr<LaunchGraph>>, kGraphKinds> idle_;
  uint64_t returns_ = 0;
  Stats stats_;
};

}  // namespace tetrad::cuda
