// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Machine (tests only): the state of a simulated driver and its entry points,
// each a member named as in CudaDriver. The files *_calls.cc hold them by
// subject; streams.cc has the threads that do the work.
//
// One lock guards everything but memory's tables and contents, which have their
// own: work holds that one shared while it touches memory, and no other lock.
// Order: mutex_, then memory_mutex_.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/cuda/simulated_driver/address_space.h"
#include "engine/cuda/simulated_driver/faults.h"
#include "engine/cuda/simulated_driver/kernels.h"
#include "engine/cuda/simulated_driver/simulated_driver.h"

namespace tetrad::cuda::simulated {

// Device addresses [begin, end) that work uses; only `begin` where the extent
// is the kernel's to find out.
struct AddressRange {
  CUdeviceptr begin = 0;
  CUdeviceptr end = 0;
};

struct Event {
  bool timed = true;
  uint64_t recorded = 0;   // calls of EventRecord
  uint64_t completed = 0;  // of them
  int64_t time_ns = 0;
};

struct Module {
  CUcontext context = nullptr;
  int device = 0;
};

struct Function {
  CUmodule module = nullptr;
  const KernelFacts* facts = nullptr;
  int max_dynamic_shared_bytes = 48 << 10;
};

struct GraphNode {
  CUgraphNode handle = nullptr;
  CUfunction function = nullptr;
  KernelLaunch launch;
  // What cuGraphKernelNodeGetParams shows.
  std::array<void*, 4> parameter_pointers{};
};

struct Graph {
  std::deque<GraphNode> nodes;  // of one stream: each after the one before
};

struct GraphExec {
  CUcontext context = nullptr;
  int device = 0;
  std::vector<CUgraphNode> handles;  // of the graph it was made from
  std::vector<CUfunction> functions;
  std::vector<KernelLaunch> launches;
  uint64_t launched = 0;
  uint64_t completed = 0;  // launches of one exec run one after the other
};

struct Work {
  // Touches memory, under its lock shared; a failure breaks the context.
  std::function<CUresult(std::string* why)> run;
  std::vector<AddressRange> uses;
  std::shared_ptr<GraphExec> exec;
  uint64_t exec_turn = 0;
  bool exec_ends = false;  // the last node
  std::shared_ptr<Event> event;
  uint64_t event_turn = 0;
};

struct Stream {
  CUcontext context = nullptr;
  std::deque<Work> queue;  // the front one may run
  uint64_t enqueued = 0;
  uint64_t completed = 0;
  bool closing = false;
  // Work under way and waiting is dropped instead of done.
  bool abandoned = false;
  bool ended = false;              // its thread has nothing left to do
  std::shared_ptr<Graph> capture;  // what is being captured
  std::thread::id capture_thread;
  bool capture_any_thread = false;
  bool capture_invalid = false;
  std::thread worker;
};

struct Context {
  int device = 0;
  int64_t retains = 0;
  std::vector<std::shared_ptr<Stream>> closed;  // streams that may still end their work
};

class Machine {
 public:
  explicit Machine(const SimulatedHardware& hardware);
  ~Machine();

#define TETRAD_CUDA_METHOD(member, symbol) decltype(::symbol) member;
  TETRAD_CUDA_ENTRY_POINTS(TETRAD_CUDA_METHOD)
#undef TETRAD_CUDA_METHOD

  // Whether a call may go on; else what it returns.
  CUresult Admit(EntryPoint entry);
  // What a call says that was admitted and had this result.
  CUresult Settle(EntryPoint entry, CUresult result) const;
  // The end of a capture that fails ends it all the same.
  void AbandonCapture(CUstream handle);

  // What SimulatedDriver's members of these names say.
  void AddFault(const Faults::Fault& fault);
  bool faults_used() const;
  bool broken() const;
  bool wait_failed() const;
  void ClearFaults();
  void BreakContext(CUresult result);
  void BreakAtWork(int64_t n, CUresult result);
  void DelayWork(std::chrono::nanoseconds delay);
  void SetHeld(bool held);
  void CorruptReplays(bool corrupt);
  void SetMemoryBytes(size_t bytes);
  DriverCounts counts() const;
  int64_t calls(EntryPoint entry) const;
  std::string last_fault() const;
  std::vector<std::string> misuse() const;

 private:
  using Lock = std::unique_lock<std::mutex>;

  // contexts (device_calls.cc)
  bool HasDevice(CUdevice device) const { return device >= 0 && device < hardware_.devices; }
  // The calling thread's, or what a call without one returns.
  CUresult FindContext(CUcontext* context) const;
  CUresult RequireContext() const;
  int CurrentDevice() const;
  void DestroyContext(Lock& lock, CUcontext handle);
  void Break(CUresult result, std::string why);
  void NoteMisuse(std::string what) { misuse_.push_back(std::move(what)); }
  CUresult Misused(std::string what, CUresult result);

  // memory (memory_calls.cc)
  size_t UsedBytes(int device) const;
  bool HasRoom(int device, size_t bytes) const;
  CUresult AddHandle(std::shared_ptr<Physical> physical, CUmemGenericAllocationHandle* handle);
  // Notes work that uses a range which is being taken away.
  void NoteUses(const AddressRange& range, const char* call);
  CUresult EnqueueCopy(CUdeviceptr device, const void* host, size_t bytes, bool to_device,
                       CUstream stream);

  // streams (streams.cc)
  CUresult FindStream(CUstream handle, std::shared_ptr<Stream>* stream) const;
  // Also refuses a stream that is being captured, which ends its capture.
  CUresult FindIdleStream(CUstream handle, const char* call, std::shared_ptr<Stream>* stream);
  // Refuses what may synchronise while the calling thread captures.
  CUresult RefuseInCapture(const char* call);
  void Enqueue(Stream& stream, Work work);
  // Until what was enqueued so far is done; or what broke the context.
  CUresult WaitFor(Lock& lock, Stream& stream);
  void RunStream(std::shared_ptr<Stream> stream);
  bool MayBegin(const Stream& stream) const;
  void Finish(Stream& stream, CUresult result, std::string why);
  void CloseStream(const std::shared_ptr<Stream>& stream);

  // modules and graphs (module_calls.cc, graph_calls.cc)
  CUresult FindFunction(CUfunction handle, Function** function);
  // What both calls that launch do.
  CUresult Launch(const char* call, const CUDA_KERNEL_NODE_PARAMS& parameters, CUstream stream,
                  bool programmatic);
  CUresult FormLaunch(const Function& function, const CUDA_KERNEL_NODE_PARAMS& parameters,
                      bool programmatic, KernelLaunch* launch);
  void AddNode(Graph& graph, CUfunction function, KernelLaunch launch);
  std::function<CUresult(std::string*)> Runner(KernelLaunch launch, bool replay);
  static void AddUses(const KernelLaunch& launch, std::vector<AddressRange>& uses);
  GraphNode* FindNode(CUgraphNode handle);

  const SimulatedHardware hardware_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // All below guarded by mutex_.
  size_t memory_bytes_;
  Faults faults_;
  CUresult broken_ = CUDA_SUCCESS;  // for ever
  bool wait_failed_ = false;        // too
  std::string last_fault_;
  std::vector<std::string> misuse_;
  std::chrono::nanoseconds delay_{0};
  bool held_ = false;
  CUresult work_break_ = CUDA_SUCCESS;  // of the piece of work after work_until_break_ others
  int64_t work_until_break_ = 0;
  bool corrupt_replays_ = false;
  bool initialised_ = false;
  std::map<CUcontext, Context> contexts_;
  std::map<CUmemGenericAllocationHandle, std::shared_ptr<Physical>> handles_;
  std::map<uint64_t, std::weak_ptr<Physical>> physical_;  // by inode
  std::map<CUstream, std::shared_ptr<Stream>> streams_;
  std::map<CUevent, std::shared_ptr<Event>> events_;
  std::map<CUmodule, Module> modules_;
  std::map<CUfunction, Function> functions_;
  std::map<CUgraph, std::shared_ptr<Graph>> graphs_;
  std::map<CUgraphExec, std::shared_ptr<GraphExec>> execs_;

  mutable std::shared_mutex memory_mutex_;
  AddressSpace memory_;  // guarded by memory_mutex_
};

// Never given out twice in a process, so that a stale one is known.
uint64_t NextHandle();
template <typename Handle>
Handle NewHandle() {
  if constexpr (std::is_pointer_v<Handle>) {
    return reinterpret_cast<Handle>(NextHandle());
  } else {
    return static_cast<Handle>(NextHandle());
  }
}

}  // namespace tetrad::cuda::simulated
