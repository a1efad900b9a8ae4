// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/simulated_driver/machine.h"

#include <atomic>

#include "absl/strings/str_cat.h"

#include "engine/cuda/errors.h"

namespace tetrad::cuda::simulated {

uint64_t NextHandle() {
  // Odd multiples far from any real address.
  static std::atomic<uint64_t> next{0x7000'0000'0000'0000};
  return next += 0x40;
}

Machine::Machine(const SimulatedHardware& hardware)
    : hardware_(hardware), memory_bytes_(hardware.memory_bytes), memory_(hardware.granularity) {}

Machine::~Machine() {
  Lock lock(mutex_);
  while (!contexts_.empty()) DestroyContext(lock, contexts_.begin()->first);
}

CUresult Machine::Admit(EntryPoint entry) {
  std::lock_guard lock(mutex_);
  if (!initialised_ && Kind(entry) != CallKind::kQuestion) return CUDA_ERROR_NOT_INITIALIZED;
  const auto fault = faults_.Meet(entry);
  if (fault.has_value()) {
    last_fault_ = absl::StrCat(Name(entry), ": ", Classify(fault->result).name);
    if (!fault->breaks) {
      wait_failed_ = wait_failed_ || Kind(entry) == CallKind::kWait;
      return fault->result;
    }
    Break(fault->result, last_fault_);
  }
  const bool tells = Kind(entry) == CallKind::kOrdinary || Kind(entry) == CallKind::kWait;
  return tells ? broken_ : CUDA_SUCCESS;
}

CUresult Machine::Settle(EntryPoint entry, CUresult result) const {
  if (Kind(entry) != CallKind::kRelease || result != CUDA_SUCCESS) return result;
  std::lock_guard lock(mutex_);
  return hardware_.releases_tell_of_a_broken_context ? broken_ : CUDA_SUCCESS;
}

void Machine::AddFault(const Faults::Fault& fault) {
  std::lock_guard lock(mutex_);
  faults_.Add(fault);
}

bool Machine::faults_used() const {
  std::lock_guard lock(mutex_);
  return faults_.used();
}

bool Machine::broken() const {
  std::lock_guard lock(mutex_);
  return broken_ != CUDA_SUCCESS;
}

bool Machine::wait_failed() const {
  std::lock_guard lock(mutex_);
  return wait_failed_;
}

void Machine::ClearFaults() {
  std::lock_guard lock(mutex_);
  faults_.Clear();
  work_break_ = CUDA_SUCCESS;
}

void Machine::BreakContext(CUresult result) {
  std::lock_guard lock(mutex_);
  Break(result, absl::StrCat("broken: ", Classify(result).name));
}

void Machine::Break(CUresult result, std::string why) {
  if (broken_ != CUDA_SUCCESS) return;
  broken_ = result;
  last_fault_ = std::move(why);
  changed_.notify_all();
}

CUresult Machine::Misused(std::string what, CUresult result) {
  NoteMisuse(std::move(what));
  return result;
}

void Machine::BreakAtWork(int64_t n, CUresult result) {
  std::lock_guard lock(mutex_);
  work_until_break_ = n;
  work_break_ = result;
}

void Machine::DelayWork(std::chrono::nanoseconds delay) {
  std::lock_guard lock(mutex_);
  delay_ = delay;
}

void Machine::SetHeld(bool held) {
  std::lock_guard lock(mutex_);
  held_ = held;
  changed_.notify_all();
}

void Machine::CorruptReplays(bool corrupt) {
  std::lock_guard lock(mutex_);
  corrupt_replays_ = corrupt;
}

void Machine::SetMemoryBytes(size_t bytes) {
  std::lock_guard lock(mutex_);
  memory_bytes_ = bytes;
}

DriverCounts Machine::counts() const {
  std::lock_guard lock(mutex_);
  DriverCounts counts;
  counts.memory_handles = static_cast<int64_t>(handles_.size());
  for (const auto& [handle, context] : contexts_) counts.context_retains += context.retains;
  counts.streams = static_cast<int64_t>(streams_.size());
  counts.events = static_cast<int64_t>(events_.size());
  counts.modules = static_cast<int64_t>(modules_.size());
  counts.graphs = static_cast<int64_t>(graphs_.size());
  counts.graph_execs = static_cast<int64_t>(execs_.size());
  for (int device = 0; device < hardware_.devices; ++device) {
    counts.device_bytes += static_cast<int64_t>(UsedBytes(device));
  }
  std::shared_lock memory(memory_mutex_);
  counts.reservations = memory_.reservations();
  counts.mappings = memory_.mappings();
  counts.host_allocations = memory_.host_allocations();
  return counts;
}

int64_t Machine::calls(EntryPoint entry) const {
  std::lock_guard lock(mutex_);
  return faults_.calls(entry);
}

std::string Machine::last_fault() const {
  std::lock_guard lock(mutex_);
  return last_fault_;
}

std::vector<std::string> Machine::misuse() const {
  std::lock_guard lock(mutex_);
  return misuse_;
}

}  // namespace tetrad::cuda::simulated
