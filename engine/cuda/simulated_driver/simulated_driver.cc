// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/simulated_driver/simulated_driver.h"

#include <atomic>
#include <tuple>

#include "engine/cuda/simulated_driver/machine.h"
#include "engine/support/status_macros.h"

namespace tetrad::cuda {
namespace {

using simulated::Machine;

// The one that entry points lead to.
std::atomic<Machine*> installed = nullptr;

template <typename Function>
struct Thunk;

template <typename... Arguments>
struct Thunk<CUresult (*)(Arguments...)> {
  template <EntryPoint kEntry, auto kMethod>
  static CUresult Call(Arguments... arguments) {
    Machine* const machine = installed.load(std::memory_order_acquire);
    if (machine == nullptr) return CUDA_ERROR_DEINITIALIZED;
    if (const CUresult refused = machine->Admit(kEntry); refused != CUDA_SUCCESS) {
      if constexpr (kEntry == EntryPoint::kStreamEndCapture) {
        machine->AbandonCapture(std::get<0>(std::tie(arguments...)));
      }
      return refused;
    }
    return machine->Settle(kEntry, (machine->*kMethod)(arguments...));
  }
};

CudaDriver MakeTable() {
  CudaDriver driver;
#define TETRAD_CUDA_THUNK(member, symbol) \
  driver.member = &Thunk<decltype(driver.member)>::Call<EntryPoint::k##member, &Machine::member>;
  TETRAD_CUDA_ENTRY_POINTS(TETRAD_CUDA_THUNK)
#undef TETRAD_CUDA_THUNK
  return driver;
}

}  // namespace

void PrintTo(const DriverCounts& counts, std::ostream* out) {
  *out << "{memory_handles " << counts.memory_handles << ", reservations " << counts.reservations
       << ", mappings " << counts.mappings << ", host_allocations " << counts.host_allocations
       << ", context_retains " << counts.context_retains << ", streams " << counts.streams
       << ", events " << counts.events << ", modules " << counts.modules << ", graphs "
       << counts.graphs << ", graph_execs " << counts.graph_execs << ", device_bytes "
       << counts.device_bytes << "}";
}

SimulatedDriver::SimulatedDriver(const SimulatedHardware& hardware)
    : machine_(std::make_unique<Machine>(hardware)), driver_(MakeTable()) {
  Machine* none = nullptr;
  TETRAD_CHECK(installed.compare_exchange_strong(none, machine_.get()));
  driver_.Init(0);
}

SimulatedDriver::~SimulatedDriver() { installed = nullptr; }

void SimulatedDriver::FailNth(EntryPoint entry, int64_t n, CUresult result) {
  machine_->AddFault({.entry = entry, .calls_left = n, .result = result});
}
void SimulatedDriver::FailCall(int64_t n, CUresult result) {
  machine_->AddFault({.calls_left = n, .result = result});
}
void SimulatedDriver::FailWait(int64_t n, CUresult result) {
  machine_->AddFault({.calls_left = n, .result = result, .waits = true});
}
void SimulatedDriver::BreakAtCall(int64_t n, CUresult result) {
  machine_->AddFault({.calls_left = n, .result = result, .breaks = true});
}
void SimulatedDriver::BreakContext(CUresult result) { machine_->BreakContext(result); }
void SimulatedDriver::BreakAtWork(int64_t n, CUresult result) { machine_->BreakAtWork(n, result); }
bool SimulatedDriver::faults_used() const { return machine_->faults_used(); }
bool SimulatedDriver::broken() const { return machine_->broken(); }
bool SimulatedDriver::wait_failed() const { return machine_->wait_failed(); }
void SimulatedDriver::ClearFaults() { machine_->ClearFaults(); }
void SimulatedDriver::DelayWork(std::chrono::nanoseconds delay) { machine_->DelayWork(delay); }
void SimulatedDriver::Hold() { machine_->SetHeld(true); }
void SimulatedDriver::Resume() { machine_->SetHeld(false); }
void SimulatedDriver::CorruptReplays(bool corrupt) { machine_->CorruptReplays(corrupt); }
void SimulatedDriver::SetMemoryBytes(size_t bytes) { machine_->SetMemoryBytes(bytes); }
DriverCounts SimulatedDriver::counts() const { return machine_->counts(); }
int64_t SimulatedDriver::calls(EntryPoint entry) const { return machine_->calls(entry); }
std::string SimulatedDriver::last_fault() const { return machine_->last_fault(); }
std::vector<std::string> SimulatedDriver::misuse() const { return machine_->misuse(); }

}  // namespace tetrad::cuda
