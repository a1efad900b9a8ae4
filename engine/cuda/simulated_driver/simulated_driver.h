// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// SimulatedDriver (tests only): a CUDA driver in host memory, to inject faults
// and to test host code without a GPU. It is no backend.
//
// It keeps the driver's rules more strictly than a driver does: device
// addresses are not accessible to the host, arguments are checked as the header
// documents, what is released while work uses it is noted as misuse, memory is
// not zeroed, page-locked sources are read late. Streams are threads, so races
// are real and the sanitizers see them. Kernels are known by the names of their
// entries and computed on the CPU; an access outside mapped memory, or a write
// to what is mapped for reading, breaks the context as on a GPU.
//
// Entry points are plain functions, so there is one SimulatedDriver at a time in
// a process. All members are thread-safe. What was made through the driver has
// to be gone before it: see counts().
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "engine/cuda/simulated_driver/entry_point.h"
#include "kernels/cuda/driver.h"

namespace tetrad::cuda {

namespace simulated {
class Machine;
}

struct SimulatedHardware {
  int devices = 1;
  int capability = 90;  // 90 for 9.0
  int multiprocessors = 4;
  size_t memory_bytes = size_t{1} << 30;  // of each device
  size_t granularity = size_t{2} << 20;
  size_t module_bytes = 64 << 10;      // of device memory a module takes
  size_t graph_exec_bytes = 64 << 10;  // and an instantiated graph
  // Calls that give something back take effect in a broken context; whether
  // they say so is the driver's choice.
  bool releases_tell_of_a_broken_context = false;
};

// What exists now.
struct DriverCounts {
  int64_t memory_handles = 0;
  int64_t reservations = 0;
  int64_t mappings = 0;
  int64_t host_allocations = 0;
  int64_t context_retains = 0;
  int64_t streams = 0;
  int64_t events = 0;
  int64_t modules = 0;
  int64_t graphs = 0;
  int64_t graph_execs = 0;
  int64_t device_bytes = 0;  // of all devices, modules and graphs included
  bool operator==(const DriverCounts&) const = default;
  friend void PrintTo(const DriverCounts& counts, std::ostream* out);
};

class SimulatedDriver {
 public:
  explicit SimulatedDriver(const SimulatedHardware& hardware = {});
  ~SimulatedDriver();
  SimulatedDriver(const SimulatedDriver&) = delete;
  SimulatedDriver& operator=(const SimulatedDriver&) = delete;

  const CudaDriver& driver() const { return driver_; }

  // Faults, each used once. Calls are counted from 0 and from now. A call that
  // fails does nothing, but that the end of a capture ends it.
  void FailNth(EntryPoint entry, int64_t n, CUresult result);
  // The n-th call of those that can lack memory (CallKind::kOrdinary).
  void FailCall(int64_t n, CUresult result);
  // The n-th call that waits for work; the work goes on.
  void FailWait(int64_t n, CUresult result);
  // The n-th call of any but questions finds the context broken, and so do all after it.
  void BreakAtCall(int64_t n, CUresult result);
  // The context of every device, at once.
  void BreakContext(CUresult result);
  // The n-th piece of work from now fails and breaks the context, as a kernel does
  // that touches what it may not.
  void BreakAtWork(int64_t n, CUresult result);
  // Whether there is no fault of a call left that was asked for and did not happen.
  bool faults_used() const;
  bool broken() const;
  // Whether a call that waits or asks failed as asked for: then nobody can know
  // what work is over, and what is left when the context goes is no misuse.
  bool wait_failed() const;
  // Forgets them; a broken context stays broken.
  void ClearFaults();

  // Every piece of work waits this long before it begins.
  void DelayWork(std::chrono::nanoseconds delay);
  // No piece of work begins before Resume(): a device that hangs.
  void Hold();
  void Resume();
  // Kernels that compute and are replayed by a graph spoil their first output byte.
  void CorruptReplays(bool corrupt);
  void SetMemoryBytes(size_t bytes);

  DriverCounts counts() const;
  int64_t calls(EntryPoint entry) const;
  // Of the entry whose fault was injected last; what a fault says in a test's message.
  std::string last_fault() const;
  // What no program may do, one line each.
  std::vector<std::string> misuse() const;

 private:
  std::unique_ptr<simulated::Machine> machine_;
  CudaDriver driver_;
};

}  // namespace tetrad::cuda
