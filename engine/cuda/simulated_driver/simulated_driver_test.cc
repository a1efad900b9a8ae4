// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// That the simulated driver keeps the rules it is there to keep.
#include "engine/cuda/simulated_driver/simulated_driver.h"

#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/proof.h"

namespace tetrad::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kGranule = 64 << 10;

class SimulatedDriverTest : public ::testing::Test {
 protected:
  SimulatedDriverTest() {
    EXPECT_EQ(cu.DevicePrimaryCtxRetain(&context_, 0), CUDA_SUCCESS);
    EXPECT_EQ(cu.CtxSetCurrent(context_), CUDA_SUCCESS);
    EXPECT_EQ(cu.StreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
    EXPECT_EQ(cu.ModuleLoadData(&module_, "an image"), CUDA_SUCCESS);
  }
  ~SimulatedDriverTest() override {
    EXPECT_EQ(cu.ModuleUnload(module_), CUDA_SUCCESS);
    EXPECT_EQ(cu.StreamDestroy(stream_), CUDA_SUCCESS);
    EXPECT_EQ(cu.DevicePrimaryCtxRelease(0), CUDA_SUCCESS);
  }

  struct Memory {
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
  };
  CUmemAllocationProp Properties() const {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return properties;
  }
  CUresult Map(CUmemGenericAllocationHandle handle, CUmemAccess_flags access,
               CUdeviceptr* address) {
    EXPECT_EQ(cu.MemAddressReserve(address, kGranule, 0, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(cu.MemMap(*address, kGranule, 0, handle, 0), CUDA_SUCCESS);
    return SetAccess(*address, access);
  }
  CUresult SetAccess(CUdeviceptr address, CUmemAccess_flags flags) {
    const CUmemAccessDesc access = {.location = Properties().location, .flags = flags};
    return cu.MemSetAccess(address, kGranule, &access, 1);
  }
  Memory Allocate() {
    Memory memory;
    const CUmemAllocationProp properties = Properties();
    EXPECT_EQ(cu.MemCreate(&memory.handle, kGranule, &properties, 0), CUDA_SUCCESS);
    EXPECT_EQ(Map(memory.handle, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &memory.address),
              CUDA_SUCCESS);
    return memory;
  }
  void Free(const Memory& memory) {
    EXPECT_EQ(cu.MemUnmap(memory.address, kGranule), CUDA_SUCCESS);
    EXPECT_EQ(cu.MemAddressFree(memory.address, kGranule), CUDA_SUCCESS);
    EXPECT_EQ(cu.MemRelease(memory.handle), CUDA_SUCCESS);
  }
  template <typename T>
  T Read(CUdeviceptr address) {
    T value;
    EXPECT_EQ(cu.MemcpyDtoHAsync(&value, address, sizeof(T), stream_), CUDA_SUCCESS);
    return value;
  }
  template <typename... Parameters>
  CUresult Launch(const char* entry, Parameters... values) {
    CUfunction function;
    EXPECT_EQ(cu.ModuleGetFunction(&function, module_, entry), CUDA_SUCCESS);
    void* parameters[] = {&values...};
    return cu.LaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream_, parameters, nullptr);
  }
  CUgraph CaptureFill(CUdeviceptr out, uint32_t seed) {
    EXPECT_EQ(cu.StreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
    EXPECT_EQ(Launch(kProofFillEntry, out, int64_t{64}, seed, ProofFill::kCodes), CUDA_SUCCESS);
    CUgraph graph = nullptr;
    EXPECT_EQ(cu.StreamEndCapture(stream_, &graph), CUDA_SUCCESS);
    return graph;
  }

  SimulatedDriver sim_{{.memory_bytes = 20 * kGranule,
                        .granularity = kGranule,
                        .module_bytes = kGranule,
                        .graph_exec_bytes = kGranule}};
  const CudaDriver& cu = sim_.driver();
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUmodule module_ = nullptr;
};

TEST_F(SimulatedDriverTest, EverythingIsCounted) {
  const DriverCounts before = sim_.counts();
  const Memory memory = Allocate();
  const DriverCounts with = sim_.counts();
  EXPECT_EQ(with.memory_handles, before.memory_handles + 1);
  EXPECT_EQ(with.reservations, before.reservations + 1);
  EXPECT_EQ(with.mappings, before.mappings + 1);
  EXPECT_EQ(with.device_bytes, before.device_bytes + static_cast<int64_t>(kGranule));
  size_t free = 0, total = 0;
  ASSERT_EQ(cu.MemGetInfo(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(total - free, static_cast<size_t>(with.device_bytes));
  Free(memory);
  EXPECT_EQ(sim_.counts(), before);
}

TEST_F(SimulatedDriverTest, MemoryIsFullOfJunkAndItsLimitExact) {
  const Memory memory = Allocate();
  EXPECT_NE(Read<uint64_t>(memory.address), 0u);
  const CUmemAllocationProp properties = Properties();
  CUmemGenericAllocationHandle handle;
  EXPECT_EQ(cu.MemCreate(&handle, 19 * kGranule, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cu.MemCreate(&handle, 18 * kGranule, &properties, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu.MemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(cu.MemCreate(&handle, kGranule + 1, &properties, 0), CUDA_ERROR_INVALID_VALUE);
  Free(memory);
}

TEST_F(SimulatedDriverTest, ExportedMemoryIsTheSameAndOutlivesItsExporter) {
  const Memory memory = Allocate();
  int fd = -1;
  ASSERT_EQ(cu.MemExportToShareableHandle(&fd, memory.handle,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
  ASSERT_EQ(cu.MemsetD8Async(memory.address, 7, kGranule, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cu.StreamSynchronize(stream_), CUDA_SUCCESS);
  const DriverCounts once = sim_.counts();
  Memory twin;
  const auto import = [&](int from) {
    return cu.MemImportFromShareableHandle(&twin.handle,
                                           reinterpret_cast<void*>(static_cast<uintptr_t>(from)),
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  };
  ASSERT_EQ(import(fd), CUDA_SUCCESS);
  EXPECT_EQ(sim_.counts().device_bytes, once.device_bytes) << "one memory, two handles";
  Free(memory);
  ASSERT_EQ(Map(twin.handle, CU_MEM_ACCESS_FLAGS_PROT_READ, &twin.address), CUDA_SUCCESS);
  EXPECT_EQ(Read<uint8_t>(twin.address), 7);
  Free(twin);
  ::close(fd);
  EXPECT_EQ(import(fd), CUDA_ERROR_INVALID_VALUE);
  const int null = ::open("/dev/null", O_RDWR);
  EXPECT_EQ(import(null), CUDA_ERROR_UNKNOWN);
  ::close(null);
}

TEST_F(SimulatedDriverTest, AMappingOfAnotherSizeIsRefused) {
  const Memory memory = Allocate();
  CUdeviceptr address;
  ASSERT_EQ(cu.MemAddressReserve(&address, 2 * kGranule, 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu.MemMap(address, 2 * kGranule, 0, memory.handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.MemMap(memory.address, kGranule, 0, memory.handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.MemAddressFree(address, 2 * kGranule), CUDA_SUCCESS);
  EXPECT_EQ(cu.MemAddressFree(memory.address, kGranule), CUDA_ERROR_INVALID_VALUE) << "mapped";
  Free(memory);
}

TEST_F(SimulatedDriverTest, AnIllegalAccessBreaksTheContextForEver) {
  const Memory memory = Allocate();
  ASSERT_EQ(SetAccess(memory.address, CU_MEM_ACCESS_FLAGS_PROT_READ), CUDA_SUCCESS);
  EXPECT_EQ(Launch(kProofFillEntry, memory.address, int64_t{64}, 1u, ProofFill::kCodes),
            CUDA_SUCCESS);
  EXPECT_EQ(cu.StreamSynchronize(stream_), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_THAT(sim_.last_fault(), HasSubstr("mapped for reading"));
  EXPECT_EQ(cu.StreamQuery(stream_), CUDA_ERROR_ILLEGAL_ADDRESS);
  CUcontext again;
  EXPECT_EQ(cu.DevicePrimaryCtxRetain(&again, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
  Free(memory);
}

TEST_F(SimulatedDriverTest, ALaunchBeyondItsMemoryIsIllegal) {
  const Memory memory = Allocate();
  Launch(kProofFillEntry, memory.address + kGranule - 16, int64_t{17}, 1u, ProofFill::kCodes);
  EXPECT_EQ(cu.StreamSynchronize(stream_), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_THAT(sim_.last_fault(), HasSubstr("its end is not mapped"));
  Free(memory);
}

TEST_F(SimulatedDriverTest, MemoryThatWorkUsesIsNotTakenAway) {
  const Memory memory = Allocate();
  sim_.Hold();
  ASSERT_EQ(cu.MemsetD8Async(memory.address + 5, 7, 1, stream_), CUDA_SUCCESS);
  EXPECT_THAT(sim_.misuse(), IsEmpty());
  Free(memory);
  EXPECT_THAT(sim_.misuse(), ElementsAre(HasSubstr("that work under way uses")));
  sim_.Resume();
}

TEST_F(SimulatedDriverTest, APageLockedSourceIsReadLateAndAPageableOneAtOnce) {
  const Memory memory = Allocate();
  void* locked = nullptr;
  ASSERT_EQ(cu.MemHostAlloc(&locked, 64, 0), CUDA_SUCCESS);
  uint64_t pageable = 1;
  std::memset(locked, 1, 64);
  sim_.Hold();
  ASSERT_EQ(cu.MemcpyHtoDAsync(memory.address, &pageable, 8, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cu.MemcpyHtoDAsync(memory.address + 64, locked, 64, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cu.StreamQuery(stream_), CUDA_ERROR_NOT_READY);
  pageable = 2;
  std::memset(locked, 2, 64);
  sim_.Resume();
  EXPECT_EQ(Read<uint64_t>(memory.address), 1u);
  EXPECT_EQ(Read<uint8_t>(memory.address + 64), 2);
  EXPECT_THAT(sim_.misuse(), ElementsAre(HasSubstr("a page-locked source changed")));
  EXPECT_EQ(cu.MemFreeHost(locked), CUDA_SUCCESS);
  Free(memory);
}

TEST_F(SimulatedDriverTest, CallsWithoutAContextAreRefused) {
  std::thread([&] {
    size_t free, total;
    EXPECT_EQ(cu.MemGetInfo(&free, &total), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cu.StreamSynchronize(stream_), CUDA_ERROR_INVALID_CONTEXT);
  }).join();
}

TEST_F(SimulatedDriverTest, GraphsAreCapturedPatchedAndReplayed) {
  const Memory memory = Allocate();
  const CUgraph graph = CaptureFill(memory.address, 1);
  EXPECT_EQ(cu.StreamQuery(stream_), CUDA_SUCCESS) << "nothing ran";
  const DriverCounts before = sim_.counts();
  CUgraphExec exec;
  ASSERT_EQ(cu.GraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(sim_.counts().device_bytes, before.device_bytes + static_cast<int64_t>(kGranule));
  ASSERT_EQ(cu.GraphLaunch(exec, stream_), CUDA_SUCCESS);

  size_t count = 0;
  ASSERT_EQ(cu.GraphGetNodes(graph, nullptr, &count), CUDA_SUCCESS);
  ASSERT_EQ(count, 1u);
  CUgraphNode node;
  ASSERT_EQ(cu.GraphGetNodes(graph, &node, &count), CUDA_SUCCESS);
  CUDA_KERNEL_NODE_PARAMS parameters;
  ASSERT_EQ(cu.GraphKernelNodeGetParams(node, &parameters), CUDA_SUCCESS);
  EXPECT_EQ(*static_cast<CUdeviceptr*>(parameters.kernelParams[0]), memory.address);
  CUdeviceptr elsewhere = memory.address + 4096;
  std::array<void*, 4> patched;
  std::copy_n(parameters.kernelParams, 4, patched.begin());
  patched[0] = &elsewhere;
  parameters.kernelParams = patched.data();
  ASSERT_EQ(cu.GraphExecKernelNodeSetParams(exec, node, &parameters), CUDA_SUCCESS);
  ASSERT_EQ(cu.GraphLaunch(exec, stream_), CUDA_SUCCESS);
  EXPECT_EQ(Read<uint64_t>(memory.address), Read<uint64_t>(elsewhere));

  EXPECT_EQ(cu.GraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(cu.GraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(sim_.counts().device_bytes, before.device_bytes);
  Free(memory);
}

TEST_F(SimulatedDriverTest, ACaptureEndsWithItsThreadAndItsRules) {
  CUgraph graph = nullptr;
  EXPECT_EQ(cu.StreamEndCapture(stream_, &graph), CUDA_ERROR_ILLEGAL_STATE);
  ASSERT_EQ(cu.StreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  std::thread([&] {
    EXPECT_EQ(cu.CtxSetCurrent(context_), CUDA_SUCCESS);
    EXPECT_EQ(cu.StreamEndCapture(stream_, &graph), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  }).join();
  EXPECT_EQ(cu.StreamSynchronize(stream_), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(cu.StreamEndCapture(stream_, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(cu.StreamSynchronize(stream_), CUDA_SUCCESS) << "the capture is over";
  ASSERT_EQ(cu.StreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  sim_.FailNth(EntryPoint::kStreamEndCapture, 0, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cu.StreamEndCapture(stream_, &graph), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cu.StreamSynchronize(stream_), CUDA_SUCCESS) << "it is over then, too";
}

TEST_F(SimulatedDriverTest, LaunchesOfOneGraphNeverOverlap) {
  const Memory memory = Allocate();
  ASSERT_EQ(cu.MemsetD8Async(memory.address, 0, kGranule, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cu.StreamSynchronize(stream_), CUDA_SUCCESS);
  void* host = nullptr;
  constexpr uint32_t kDepth = 64;
  ASSERT_EQ(cu.MemHostAlloc(&host, kDepth * sizeof(CompletionRecord), 0), CUDA_SUCCESS);
  std::memset(host, 0, kDepth * sizeof(CompletionRecord));
  CUdeviceptr records;
  ASSERT_EQ(cu.MemHostGetDevicePointer(&records, host, 0), CUDA_SUCCESS);
  const CompletionArguments arguments = {.state = reinterpret_cast<LaunchState*>(memory.address),
                                         .records = reinterpret_cast<CompletionRecord*>(records),
                                         .depth = kDepth};
  ASSERT_EQ(cu.StreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  ASSERT_EQ(Launch(kCompletionEntry, arguments), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  ASSERT_EQ(cu.StreamEndCapture(stream_, &graph), CUDA_SUCCESS);
  CUgraphExec exec;
  ASSERT_EQ(cu.GraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
  CUstream other;
  ASSERT_EQ(cu.StreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, -1), CUDA_SUCCESS);
  for (uint32_t i = 0; i < kDepth; ++i) {
    ASSERT_EQ(cu.GraphLaunch(exec, i % 3 == 0 ? other : stream_), CUDA_SUCCESS);
  }
  auto* const all = static_cast<CompletionRecord*>(host);
  for (uint32_t i = 0; i < kDepth; ++i) {
    while (std::atomic_ref(all[i].sequence).load(std::memory_order_acquire) != i + 1) {
      std::this_thread::yield();
    }
    EXPECT_GT(all[i].device_ns, 0u);
  }
  EXPECT_EQ(cu.CtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(cu.StreamDestroy(other), CUDA_SUCCESS);
  EXPECT_EQ(cu.GraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(cu.GraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(cu.MemFreeHost(host), CUDA_SUCCESS);
  Free(memory);
  EXPECT_THAT(sim_.misuse(), IsEmpty());
}

TEST_F(SimulatedDriverTest, CallsFailAsAskedFor) {
  CUevent event;
  sim_.FailNth(EntryPoint::kEventCreate, 1, CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(cu.EventCreate(&event, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu.EventDestroy(event), CUDA_SUCCESS);
  EXPECT_FALSE(sim_.faults_used());
  EXPECT_EQ(cu.EventCreate(&event, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(sim_.faults_used());
  EXPECT_EQ(sim_.last_fault(), "cuEventCreate: CUDA_ERROR_OUT_OF_MEMORY");

  sim_.FailCall(1, CUDA_ERROR_UNKNOWN);
  ASSERT_EQ(cu.EventCreate(&event, 0), CUDA_SUCCESS);
  int count;
  EXPECT_EQ(cu.DeviceGetCount(&count), CUDA_SUCCESS) << "a question";
  EXPECT_EQ(cu.EventDestroy(event), CUDA_SUCCESS) << "gives something back";
  EXPECT_EQ(cu.StreamSynchronize(stream_), CUDA_SUCCESS) << "waits";
  EXPECT_EQ(cu.EventCreate(&event, 0), CUDA_ERROR_UNKNOWN);

  sim_.BreakAtCall(0, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(cu.StreamSynchronize(stream_), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(cu.EventCreate(&event, 0), CUDA_ERROR_LAUNCH_FAILED);
}

TEST_F(SimulatedDriverTest, WorkBreaksTheContextAsAskedFor) {
  const Memory memory = Allocate();
  sim_.BreakAtWork(1, CUDA_ERROR_MISALIGNED_ADDRESS);
  ASSERT_EQ(cu.MemsetD8Async(memory.address, 7, 1, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cu.StreamSynchronize(stream_), CUDA_SUCCESS);
  ASSERT_EQ(cu.MemsetD8Async(memory.address, 7, 1, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cu.StreamSynchronize(stream_), CUDA_ERROR_MISALIGNED_ADDRESS);
  Free(memory);
}

TEST_F(SimulatedDriverTest, CopiesWithinTheDeviceAreOfTheirTurnAndDoNotOverlap) {
  const Memory memory = Allocate();
  const CUdeviceptr from = memory.address, to = from + 64;
  sim_.Hold();
  ASSERT_EQ(cu.MemsetD8Async(from, 7, 64, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cu.MemcpyDtoDAsync(to, from, 64, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cu.MemsetD8Async(from, 8, 64, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cu.StreamQuery(stream_), CUDA_ERROR_NOT_READY);
  sim_.Resume();
  EXPECT_EQ(Read<uint64_t>(to), 0x0707070707070707u);
  EXPECT_EQ(Read<uint64_t>(to + 56), 0x0707070707070707u);
  EXPECT_EQ(Read<uint64_t>(from), 0x0808080808080808u);
  EXPECT_THAT(sim_.misuse(), IsEmpty());
  EXPECT_EQ(cu.MemcpyDtoDAsync(to, from, 65, stream_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.MemcpyDtoDAsync(from, to, 65, stream_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.MemcpyDtoDAsync(from, from + kGranule - 8, 16, stream_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(sim_.misuse(),
              ElementsAre(HasSubstr("overlap"), HasSubstr("overlap"), HasSubstr("is not mapped")));
  ASSERT_EQ(SetAccess(memory.address, CU_MEM_ACCESS_FLAGS_PROT_READ), CUDA_SUCCESS);
  ASSERT_EQ(cu.MemcpyDtoDAsync(to, from, 64, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cu.StreamSynchronize(stream_), CUDA_ERROR_ILLEGAL_ADDRESS);
  Free(memory);
}

}  // namespace
}  // namespace tetrad::cuda
