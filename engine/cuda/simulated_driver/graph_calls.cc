// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Entry points of graphs: chains of kernels, as captures of one stream are.
#include <algorithm>

#include "absl/strings/str_cat.h"

#include "engine/cuda/simulated_driver/machine.h"

namespace tetrad::cuda::simulated {

void Machine::AddNode(Graph& graph, CUfunction function, KernelLaunch launch) {
  GraphNode& node = graph.nodes.emplace_back();
  node.handle = NewHandle<CUgraphNode>();
  node.function = function;
  node.launch = std::move(launch);
  for (size_t i = 0; i < node.parameter_pointers.size(); ++i) {
    node.parameter_pointers[i] = node.launch.parameters[i].data();
  }
}

GraphNode* Machine::FindNode(CUgraphNode handle) {
  for (const auto& [id, graph] : graphs_) {
    for (GraphNode& node : graph->nodes) {
      if (node.handle == handle) return &node;
    }
  }
  return nullptr;
}

CUresult Machine::GraphDestroy(CUgraph handle) {
  std::lock_guard lock(mutex_);
  if (graphs_.erase(handle) == 1) return CUDA_SUCCESS;
  return Misused("cuGraphDestroy of a graph that is not live", CUDA_ERROR_INVALID_VALUE);
}

CUresult Machine::GraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  std::lock_guard lock(mutex_);
  const auto found = graphs_.find(handle);
  if (found == graphs_.end() || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto& all = found->second->nodes;
  if (nodes != nullptr) {
    for (size_t i = 0; i < *count; ++i) nodes[i] = i < all.size() ? all[i].handle : nullptr;
    *count = std::min(*count, all.size());
  } else {
    *count = all.size();
  }
  return CUDA_SUCCESS;
}

CUresult Machine::GraphKernelNodeGetParams(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS* out) {
  std::lock_guard lock(mutex_);
  GraphNode* const node = FindNode(handle);
  if (node == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = {.func = node->function,
          .gridDimX = node->launch.grid[0],
          .gridDimY = node->launch.grid[1],
          .gridDimZ = node->launch.grid[2],
          .blockDimX = node->launch.block[0],
          .blockDimY = node->launch.block[1],
          .blockDimZ = node->launch.block[2],
          .sharedMemBytes = node->launch.shared_bytes,
          .kernelParams = node->parameter_pointers.data()};
  return CUDA_SUCCESS;
}

CUresult Machine::GraphInstantiate(CUgraphExec* handle, CUgraph graph, unsigned long long flags) {
  constexpr unsigned long long kKnown = CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  std::lock_guard lock(mutex_);
  CUcontext context;
  if (const CUresult result = FindContext(&context); result != CUDA_SUCCESS) return result;
  const auto found = graphs_.find(graph);
  if (handle == nullptr || found == graphs_.end() || (flags & ~kKnown) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!HasRoom(CurrentDevice(), hardware_.graph_exec_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  auto exec = std::make_shared<GraphExec>();
  exec->context = context;
  exec->device = CurrentDevice();
  for (const GraphNode& node : found->second->nodes) {
    exec->handles.push_back(node.handle);
    exec->functions.push_back(node.function);
    exec->launches.push_back(node.launch);
  }
  *handle = NewHandle<CUgraphExec>();
  execs_[*handle] = std::move(exec);
  return CUDA_SUCCESS;
}

CUresult Machine::GraphExecDestroy(CUgraphExec handle) {
  std::lock_guard lock(mutex_);
  if (execs_.erase(handle) == 1) return CUDA_SUCCESS;
  return Misused("cuGraphExecDestroy of one that is not live", CUDA_ERROR_INVALID_VALUE);
}

CUresult Machine::GraphUpload(CUgraphExec handle, CUstream stream_handle) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<Stream> stream;
  if (const CUresult result = FindIdleStream(stream_handle, "cuGraphUpload", &stream);
      result != CUDA_SUCCESS) {
    return result;
  }
  if (!execs_.contains(handle)) return CUDA_ERROR_INVALID_VALUE;
  Enqueue(*stream, {});
  return CUDA_SUCCESS;
}

CUresult Machine::GraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<Stream> stream;
  if (const CUresult result = FindIdleStream(stream_handle, "cuGraphLaunch", &stream);
      result != CUDA_SUCCESS) {
    return result;
  }
  const auto found = execs_.find(handle);
  if (found == execs_.end()) {
    return Misused("cuGraphLaunch of one that is not live", CUDA_ERROR_INVALID_VALUE);
  }
  const std::shared_ptr<GraphExec>& exec = found->second;
  const uint64_t turn = exec->launched++;
  // Each node by itself: when one runs, and tells the host something, those before
  // it are over, and what they used may be given back.
  for (size_t i = 0; i < exec->launches.size(); ++i) {
    Work work;
    AddUses(exec->launches[i], work.uses);
    work.run = Runner(exec->launches[i], /*replay=*/true);
    work.exec = exec;
    work.exec_turn = turn;
    work.exec_ends = i + 1 == exec->launches.size();
    Enqueue(*stream, std::move(work));
  }
  return CUDA_SUCCESS;
}

CUresult Machine::GraphExecKernelNodeSetParams(CUgraphExec handle, CUgraphNode node,
                                               const CUDA_KERNEL_NODE_PARAMS* parameters) {
  std::lock_guard lock(mutex_);
  if (const CUresult result = RequireContext(); result != CUDA_SUCCESS) return result;
  const auto found = execs_.find(handle);
  if (found == execs_.end() || parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphExec& exec = *found->second;
  const auto place = std::find(exec.handles.begin(), exec.handles.end(), node);
  if (place == exec.handles.end()) return CUDA_ERROR_INVALID_VALUE;
  if (FindNode(node) == nullptr) {
    return Misused("a node of a graph that was destroyed", CUDA_ERROR_INVALID_VALUE);
  }
  const auto at = static_cast<size_t>(place - exec.handles.begin());
  Function* function;
  if (const CUresult result = FindFunction(parameters->func, &function); result != CUDA_SUCCESS) {
    return result;
  }
  // Any function of the node's context.
  if (modules_.at(function->module).context != exec.context) return CUDA_ERROR_INVALID_VALUE;
  KernelLaunch launch;
  // The edge before the node stays what it is.
  if (const CUresult result =
          FormLaunch(*function, *parameters, exec.launches[at].programmatic, &launch);
      result != CUDA_SUCCESS) {
    return result;
  }
  exec.launches[at] = std::move(launch);
  exec.functions[at] = parameters->func;
  return CUDA_SUCCESS;
}

}  // namespace tetrad::cuda::simulated
