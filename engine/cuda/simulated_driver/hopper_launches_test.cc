// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// How the Hopper kernels are launched on the simulated driver: with attributes, in
// graphs whose nodes become other kernels, by tensor maps.
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/cuda/simulated_driver/hopper_problem.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/proof.h"

namespace tetrad::cuda {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr auto kShapes = GroupsOf(141, 96, 9, 0, 70);

Operands Make(const ProblemTypes& types) {
  return Operands(kShapes, {.types = types, .form = GroupForm::kStacked, .seed = 12});
}
const sm90::Instance& Mixed() { return sm90::kInstances[0]; }
const sm90::Instance& Decode() { return sm90::kInstances[std::size(sm90::kInstances) - 1]; }

// A launch of 64 bytes of the fill kernel, as one call takes it.
class Fill {
 public:
  explicit Fill(Gpu& gpu) : gpu_(gpu), out_(gpu.Allocate(64)) {
    config.hStream = gpu.stream;
    config.attrs = attributes.data();
    for (CUlaunchAttribute& attribute : attributes) {
      attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    }
  }
  CUresult Launch(const CUlaunchConfig* with) {
    int64_t bytes = 64;
    uint32_t seed = 1;
    auto fill = ProofFill::kCodes;
    void* parameters[] = {&out_, &bytes, &seed, &fill};
    return gpu_.cu.LaunchKernelEx(with, gpu_.Function(kProofFillEntry), parameters, nullptr);
  }
  CUresult Launch() { return Launch(&config); }
  std::vector<uint8_t> Written() {
    return gpu_.Download(reinterpret_cast<const uint8_t*>(out_), 64);
  }

  std::array<CUlaunchAttribute, 2> attributes{};
  CUlaunchConfig config = {
      .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1, .blockDimZ = 1};

 private:
  Gpu& gpu_;
  CUdeviceptr out_;
};

TEST(SimulatedLaunchTest, WithoutAttributesOrAProgrammaticEdgeThatIsOff) {
  Gpu gpu;
  Fill fill(gpu);
  const std::vector<uint8_t> before = fill.Written();
  EXPECT_EQ(fill.Launch(), CUDA_SUCCESS);
  const std::vector<uint8_t> after = fill.Written();
  EXPECT_NE(before, after);
  fill.config.numAttrs = 1;
  EXPECT_EQ(fill.Launch(), CUDA_SUCCESS);
  EXPECT_THAT(gpu.sim.misuse(), IsEmpty());
  fill.attributes[0].value.programmaticStreamSerializationAllowed = 1;
  EXPECT_EQ(fill.Launch(), CUDA_SUCCESS);
  EXPECT_THAT(gpu.sim.misuse(), ElementsAre(HasSubstr("does not wait for the kernel before it")));
}

TEST(SimulatedLaunchTest, WrongLaunchesAreRefused) {
  Gpu gpu;
  Fill fill(gpu);
  EXPECT_EQ(fill.Launch(nullptr), CUDA_ERROR_INVALID_VALUE);
  fill.config.numAttrs = 2;
  EXPECT_EQ(fill.Launch(), CUDA_ERROR_INVALID_VALUE);
  fill.config.numAttrs = 1;
  fill.attributes[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  fill.attributes[0].value.clusterDim = {1, 1, 1};
  EXPECT_EQ(fill.Launch(), CUDA_ERROR_INVALID_VALUE);
  fill.config.attrs = nullptr;
  EXPECT_EQ(fill.Launch(), CUDA_ERROR_INVALID_VALUE);
  fill.config.numAttrs = 0;
  fill.config.blockDimX = 1025;
  EXPECT_EQ(fill.Launch(), CUDA_ERROR_INVALID_VALUE);
  fill.config.blockDimX = 32;
  fill.config.sharedMemBytes = (48 << 10) + 1;
  EXPECT_EQ(fill.Launch(), CUDA_ERROR_INVALID_VALUE) << "more than the function was granted";
  fill.config.sharedMemBytes = 0;
  EXPECT_THAT(gpu.sim.misuse(), IsEmpty());
  fill.config.hStream = nullptr;
  EXPECT_EQ(fill.Launch(), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_THAT(gpu.sim.misuse(), ElementsAre(HasSubstr("cuLaunchKernelEx on the legacy stream")));
}

TEST(SimulatedLaunchTest, ThreadsAndSharedMemoryAreTheKernels) {
  Gpu gpu;
  Operands operands = Make({});
  HopperProblem problem(gpu, operands, Mixed());
  problem.UseHostM();
  ASSERT_EQ(problem.Run(), CUDA_SUCCESS);
  LaunchShape shape = problem.GemmShape();
  EXPECT_THAT(gpu.sim.misuse(), IsEmpty());
  shape.threads -= 32;
  EXPECT_EQ(gpu.Launch(problem.GemmFunction(), shape, problem.gemm), CUDA_SUCCESS);
  EXPECT_THAT(gpu.sim.misuse(), ElementsAre(HasSubstr("tetrad_sm90_fp16_mixed with 352 threads")));
  shape = problem.GemmShape();
  shape.threads = 640;
  EXPECT_EQ(gpu.Launch(problem.GemmFunction(), shape, problem.gemm),
            CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
}

TEST(SimulatedLaunchTest, TheHopperGemmIsOfOneCapability) {
  for (const int capability : {80, 90, 100}) {
    Gpu gpu(capability);
    CUfunction function;
    for (const char* const entry : {"tetrad_sm90_fp16_mixed", "tetrad_sm90_bf16_decode"}) {
      EXPECT_EQ(gpu.cu.ModuleGetFunction(&function, gpu.module, entry),
                capability == 90 ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
    }
    for (const char* const entry : {sm90::kPackEntry, sm90::kUnpackEntry, sm90::kPrepareEntry}) {
      EXPECT_EQ(gpu.cu.ModuleGetFunction(&function, gpu.module, entry), CUDA_SUCCESS);
    }
    EXPECT_EQ(gpu.cu.ModuleGetFunction(&function, gpu.module, "tetrad_sm90_fp16_none"),
              CUDA_ERROR_NOT_FOUND);
  }
}

TEST(SimulatedLaunchTest, EveryInstanceFitsOnAMultiprocessorOnce) {
  Gpu gpu;
  for (const sm90::Instance& instance : sm90::kInstances) {
    const int32_t shared = sm90::SharedBytes(instance);
    const CUfunction function =
        gpu.Function(absl::StrCat("tetrad_sm90_bf16_", instance.name), shared);
    int ctas = 0;
    EXPECT_EQ(gpu.cu.OccupancyMaxActiveBlocksPerMultiprocessor(
                  &ctas, function, sm90::Threads(instance), static_cast<size_t>(shared)),
              CUDA_SUCCESS);
    EXPECT_EQ(ctas, 1) << instance.name;
  }
}

TEST(SimulatedLaunchTest, WhatAQueuedGemmUsesIsNotTakenAway) {
  Operands operands = Make({});
  const auto used = [](const HopperProblem& problem) {
    return std::vector<const void*>{problem.gemm.weights,    problem.gemm.c,
                                    problem.gemm.alpha,      problem.gemm.state,
                                    problem.prepare.tokens,  problem.gemm.live.covers,
                                    problem.gemm.live.lists, problem.gemm.live.m_values};
  };
  for (size_t i = 0; i < 8; ++i) {
    Gpu gpu;
    HopperProblem problem(gpu, operands, Mixed());
    problem.UseDeviceM(MSource::kOffsets, 79, {0, 9, 9, 79});
    ASSERT_EQ(gpu.Synchronize(), CUDA_SUCCESS);
    gpu.sim.Hold();
    ASSERT_EQ(problem.LaunchGemm(), CUDA_SUCCESS);
    ASSERT_THAT(gpu.sim.misuse(), IsEmpty());
    gpu.Free(reinterpret_cast<CUdeviceptr>(used(problem)[i]));
    EXPECT_THAT(gpu.sim.misuse(), Not(IsEmpty())) << i;
    EXPECT_THAT(gpu.sim.misuse(), Each(HasSubstr("that work under way uses"))) << i;
    gpu.sim.Resume();
    EXPECT_EQ(gpu.Synchronize(), CUDA_ERROR_ILLEGAL_ADDRESS) << i;
  }
}

CUDA_KERNEL_NODE_PARAMS NodeOf(CUfunction function, const LaunchShape& shape, void** parameters) {
  return {.func = function,
          .gridDimX = shape.grid,
          .gridDimY = 1,
          .gridDimZ = 1,
          .blockDimX = shape.threads,
          .blockDimY = 1,
          .blockDimZ = 1,
          .sharedMemBytes = shape.shared_bytes,
          .kernelParams = parameters};
}

// prepare (if the problem needs it), GEMM and completion, captured and instantiated.
class HopperGraph {
 public:
  HopperGraph(Gpu& gpu, HopperProblem& problem) : gpu_(gpu) {
    void* records = nullptr;
    EXPECT_EQ(gpu.cu.MemHostAlloc(&records, kDepth * sizeof(CompletionRecord), 0), CUDA_SUCCESS);
    CUdeviceptr on_device = 0;
    EXPECT_EQ(gpu.cu.MemHostGetDevicePointer(&on_device, records, 0), CUDA_SUCCESS);
    records_ = static_cast<CompletionRecord*>(records);
    const CompletionArguments completion = {
        .state = problem.gemm.state,
        .records = reinterpret_cast<CompletionRecord*>(on_device),
        .depth = kDepth};
    EXPECT_EQ(gpu.cu.StreamBeginCapture(gpu.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
              CUDA_SUCCESS);
    if (problem.prepares()) {
      EXPECT_EQ(problem.LaunchPrepare(), CUDA_SUCCESS);
    }
    EXPECT_EQ(problem.LaunchGemm(), CUDA_SUCCESS);
    EXPECT_EQ(gpu.Launch(gpu.Function(kCompletionEntry), {}, completion), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cu.StreamEndCapture(gpu.stream, &graph_), CUDA_SUCCESS);
    size_t count = 0;
    EXPECT_EQ(gpu.cu.GraphGetNodes(graph_, nullptr, &count), CUDA_SUCCESS);
    nodes.resize(count);
    EXPECT_EQ(gpu.cu.GraphGetNodes(graph_, nodes.data(), &count), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cu.GraphInstantiate(&exec_, graph_, 0), CUDA_SUCCESS);
  }
  ~HopperGraph() {
    EXPECT_EQ(gpu_.cu.StreamSynchronize(gpu_.stream), CUDA_SUCCESS);
    EXPECT_EQ(gpu_.cu.GraphExecDestroy(exec_), CUDA_SUCCESS);
    EXPECT_EQ(gpu_.cu.GraphDestroy(graph_), CUDA_SUCCESS);
    EXPECT_EQ(gpu_.cu.MemFreeHost(records_), CUDA_SUCCESS);
  }
  HopperGraph(const HopperGraph&) = delete;

  CUresult Set(size_t node, CUfunction function, const LaunchShape& shape, const void* arguments) {
    void* parameters[] = {const_cast<void*>(arguments)};
    const CUDA_KERNEL_NODE_PARAMS set = NodeOf(function, shape, parameters);
    return gpu_.cu.GraphExecKernelNodeSetParams(exec_, nodes[node], &set);
  }
  CompletionRecord Replay() {
    EXPECT_EQ(gpu_.cu.GraphLaunch(exec_, gpu_.stream), CUDA_SUCCESS);
    EXPECT_EQ(gpu_.Synchronize(), CUDA_SUCCESS) << gpu_.sim.last_fault();
    return records_[replays_++ % kDepth];
  }
  std::vector<CUgraphNode> nodes;

 private:
  static constexpr uint32_t kDepth = 4;
  Gpu& gpu_;
  CompletionRecord* records_ = nullptr;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
  uint32_t replays_ = 0;
};

TEST(SimulatedGraphTest, ThreeNodesRunInTurnAndTwoWhereTokensNeedNone) {
  for (const ActivationType type : {ActivationType::kNvfp4, ActivationType::kFp16}) {
    Gpu gpu;
    Operands operands = Make({.a_type = type});
    HopperProblem problem(gpu, operands, Mixed());
    // The second group's end falls.
    problem.UseDeviceM(MSource::kOffsets, 79, {0, 9, 5, 79});
    ASSERT_EQ(problem.expected_error, kErrorOffsetsNotMonotone);
    HopperGraph graph(gpu, problem);
    ASSERT_EQ(graph.nodes.size(), type == ActivationType::kNvfp4 ? 3u : 2u);
    const CompletionRecord record = graph.Replay();
    EXPECT_EQ(record.sequence, 1u);
    EXPECT_EQ(record.error_word, kErrorOffsetsNotMonotone);
    EXPECT_GT(record.device_ns, 0u);
    problem.expected_error = 0;  // the completion took it
    problem.ExpectCorrect("replayed");
    EXPECT_THAT(gpu.sim.misuse(), IsEmpty());
  }
}

TEST(SimulatedGraphTest, ANodeBecomesAnotherFunctionOfItsContext) {
  Gpu gpu;
  Operands operands = Make({});
  HopperProblem problem(gpu, operands, Mixed()), other(gpu, operands, Decode());
  problem.UseHostM();
  other.UseHostM();
  HopperGraph graph(gpu, problem);
  graph.Replay();
  problem.ExpectCorrect("as captured");

  const CUfunction decode = other.GemmFunction();
  LaunchShape shape = other.GemmShape();
  shape.shared_bytes += 1;
  EXPECT_EQ(graph.Set(1, decode, shape, &other.gemm), CUDA_ERROR_INVALID_VALUE);
  shape = other.GemmShape();
  shape.threads = 1025;
  EXPECT_EQ(graph.Set(1, decode, shape, &other.gemm), CUDA_ERROR_INVALID_VALUE);
  shape = other.GemmShape();
  shape.grid = 0;
  EXPECT_EQ(graph.Set(1, decode, shape, &other.gemm), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(graph.Set(1, nullptr, other.GemmShape(), &other.gemm), CUDA_ERROR_INVALID_HANDLE);
  problem.ClearOutput();
  graph.Replay();
  problem.ExpectCorrect("as before what was refused");

  ASSERT_EQ(graph.Set(0, gpu.Function(sm90::kPrepareEntry), {.threads = sm90::kPrepareThreads},
                      &other.prepare),
            CUDA_SUCCESS);
  ASSERT_EQ(graph.Set(1, decode, other.GemmShape(), &other.gemm), CUDA_SUCCESS);
  EXPECT_EQ(graph.Replay().sequence, 3u);
  EXPECT_NE(gpu.Download(other.gemm.state, 1)[0].begun_ns, 0u);
  other.ExpectCorrect("another instance");
  EXPECT_THAT(gpu.sim.misuse(), IsEmpty());
}

TEST(SimulatedGraphTest, AFunctionMayBeOfAnotherModuleButNotOfAnotherContext) {
  Gpu gpu(90, 2);
  Operands operands = Make({});
  HopperProblem problem(gpu, operands, Mixed());
  problem.UseHostM();
  CUmodule module = nullptr;
  ASSERT_EQ(gpu.cu.ModuleLoadData(&module, "another image"), CUDA_SUCCESS);
  CUcontext context = nullptr, other = nullptr;
  ASSERT_EQ(gpu.cu.CtxGetCurrent(&context), CUDA_SUCCESS);
  ASSERT_EQ(gpu.cu.DevicePrimaryCtxRetain(&other, 1), CUDA_SUCCESS);
  const auto function_of = [&](CUmodule from) {
    CUfunction function = nullptr;
    EXPECT_EQ(gpu.cu.ModuleGetFunction(&function, from, "tetrad_sm90_fp16_mixed"), CUDA_SUCCESS);
    EXPECT_EQ(gpu.cu.FuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                      sm90::SharedBytes(Mixed())),
              CUDA_SUCCESS);
    return function;
  };
  {
    HopperGraph graph(gpu, problem);
    ASSERT_EQ(graph.Set(1, function_of(module), problem.GemmShape(), &problem.gemm), CUDA_SUCCESS);
    graph.Replay();
    problem.ExpectCorrect("of another module");

    ASSERT_EQ(gpu.cu.CtxSetCurrent(other), CUDA_SUCCESS);
    CUmodule foreign = nullptr;
    ASSERT_EQ(gpu.cu.ModuleLoadData(&foreign, "an image"), CUDA_SUCCESS);
    const CUfunction function = function_of(foreign);
    ASSERT_EQ(gpu.cu.CtxSetCurrent(context), CUDA_SUCCESS);
    EXPECT_EQ(graph.Set(1, function, problem.GemmShape(), &problem.gemm), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(gpu.cu.ModuleUnload(foreign), CUDA_SUCCESS);
  }
  EXPECT_EQ(gpu.cu.ModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(gpu.cu.DevicePrimaryCtxRelease(1), CUDA_SUCCESS);
  EXPECT_THAT(gpu.sim.misuse(), IsEmpty());
}

TEST(SimulatedGraphTest, AProgrammaticEdgeStaysWhatTheNodeBecomes) {
  Gpu gpu;
  Operands operands = Make({});
  HopperProblem problem(gpu, operands, Mixed());
  problem.UseHostM();
  HopperGraph graph(gpu, problem);
  EXPECT_THAT(gpu.sim.misuse(), IsEmpty());
  const CompletionArguments completion;
  const CUfunction function = gpu.Function(kCompletionEntry);
  ASSERT_EQ(graph.Set(2, function, {}, &completion), CUDA_SUCCESS);
  EXPECT_THAT(gpu.sim.misuse(), IsEmpty());
  ASSERT_EQ(graph.Set(1, function, {}, &completion), CUDA_SUCCESS);
  EXPECT_THAT(gpu.sim.misuse(), ElementsAre(HasSubstr("does not wait for the kernel before it")));
}

TEST(SimulatedGraphTest, ACorruptReplaySpoilsOneByteOfTheGemm) {
  for (const MSource source : {MSource::kHost, MSource::kOffsets}) {
    Gpu gpu;
    Operands operands = Make({});
    HopperProblem problem(gpu, operands, Mixed());
    if (source == MSource::kHost) {
      problem.UseHostM();
    } else {
      problem.UseDeviceM(source, 79, {0, 9, 9, 79});
    }
    HopperGraph graph(gpu, problem);
    graph.Replay();
    std::vector<std::byte> right = problem.Output();
    gpu.sim.CorruptReplays(true);
    ASSERT_EQ(problem.Run(), CUDA_SUCCESS);
    EXPECT_EQ(problem.Output(), right) << "no replay";
    graph.Replay();
    const std::vector<std::byte> wrong = problem.Output();
    int64_t different = 0;
    for (size_t i = 0; i < right.size(); ++i) different += right[i] != wrong[i] ? 1 : 0;
    EXPECT_EQ(different, 1);
    gpu.sim.CorruptReplays(false);
    graph.Replay();
    EXPECT_EQ(problem.Output(), right);
  }
}

// The arguments of one call.
struct MapCall {
  alignas(CUtensorMap) std::array<std::byte, 2 * sizeof(CUtensorMap)> room{};
  CUtensorMap* map = reinterpret_cast<CUtensorMap*>(room.data());
  uint32_t rank = 2;
  uint64_t address = 1 << 20;
  std::array<cuuint64_t, 2> dims = {96, 10};
  std::array<cuuint64_t, 1> strides = {192};
  std::array<cuuint32_t, 2> box = {64, 80};
  std::array<cuuint32_t, 2> steps = {1, 1};
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
  CUresult Encode(const CudaDriver& cu) {
    return cu.TensorMapEncodeTiled(
        map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, rank, reinterpret_cast<void*>(address), dims.data(),
        strides.data(), box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  }
};

TEST(SimulatedTensorMapTest, WhatTheRulesRefuseIsRefused) {
  Gpu gpu;
  MapCall right;
  EXPECT_EQ(right.Encode(gpu.cu), CUDA_SUCCESS);
  const std::array before = right.room;
  right.dims[1] = 11;
  EXPECT_EQ(right.Encode(gpu.cu), CUDA_SUCCESS);
  EXPECT_NE(right.room, before);
  const struct {
    const char* what;
    void (*change)(MapCall&);
  } wrong[] = {
      {"no map", [](MapCall& c) { c.map = nullptr; }},
      {"a misaligned map",
       [](MapCall& c) { c.map = reinterpret_cast<CUtensorMap*>(c.room.data() + 16); }},
      {"rank 0", [](MapCall& c) { c.rank = 0; }},
      {"rank 6", [](MapCall& c) { c.rank = 6; }},
      {"address", [](MapCall& c) { c.address += 8; }},
      {"no address", [](MapCall& c) { c.address = 0; }},
      {"dims", [](MapCall& c) { c.dims[1] = 0; }},
      {"strides", [](MapCall& c) { c.strides[0] = 200; }},
      {"strides within a row", [](MapCall& c) { c.strides[0] = 176; }},
      {"box", [](MapCall& c) { c.box[1] = 257; }},
      {"box of more than the swizzle", [](MapCall& c) { c.box[0] = 72; }},
      {"element strides", [](MapCall& c) { c.steps[1] = 9; }},
  };
  for (const auto& row : wrong) {
    MapCall call;
    row.change(call);
    EXPECT_EQ(call.Encode(gpu.cu), CUDA_ERROR_INVALID_VALUE) << row.what;
    EXPECT_EQ(call.room, (std::array<std::byte, sizeof(call.room)>{})) << row.what;
  }
}

}  // namespace
}  // namespace tetrad::cuda
