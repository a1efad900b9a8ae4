// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu_device.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <new>
#include <utility>

#include <pthread.h>

#include "absl/strings/str_cat.h"

#include "engine/machine_limits.h"
#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"
#include "kernels/cpu/rates.h"

namespace tetrad {
namespace {

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Stable across restarts: from the machine id, which itself must not be shown on
// a network (machine-id(5)). 64 bits (FNV-1a) of its 128 do not give it away.
std::string CpuUuid() {
  std::string id;
  std::ifstream("/etc/machine-id") >> id;
  if (id.empty()) return "cpu-local";
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : id) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  return absl::StrCat("cpu-", absl::Hex(hash, absl::kZeroPad16));
}

TileTraits CpuTiles() {
  TileTraits tile;
  tile.max_rows = cpu::kMaxTileRows;
  tile.max_columns = cpu::kMaxTileColumns;
  tile.column_granule = cpu::kTileColumnGranule;
  return tile;
}

struct FreeScratch {
  void operator()(std::byte* p) const { std::free(p); }
};

}  // namespace

absl::StatusOr<std::unique_ptr<CpuDevice>> CpuDevice::Create(const Options& options,
                                                             std::function<void()> wake) {
  const cpu::InstructionSet set = options.instruction_set.value_or(cpu::BestInstructionSet());
  if (!cpu::Supported(set)) {
    return absl::FailedPreconditionError(
        absl::StrCat("instruction_set: this processor lacks ", std::string(cpu::Name(set))));
  }
  if (options.max_in_flight < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_in_flight=", options.max_in_flight, " must be at least 1"));
  }
  DeviceLimits limits;
  limits.uuid = CpuUuid();
  limits.name = absl::StrCat("CPU, ", std::string(cpu::Name(set)));
  limits.capability = "cpu";
  const MachineLimits machine = ReadMachineLimits();
  limits.ctas = options.threads > 0 ? options.threads : machine.threads;
  limits.memory_bytes =
      options.memory_bytes > 0 ? options.memory_bytes : machine.memory_bytes / 4 * 3;
  limits.lanes = 4;
  limits.max_in_flight = options.max_in_flight;
  limits.kernels.push_back({absl::StrCat("cpu.", std::string(cpu::Name(set))), CpuTiles()});
  if (options.measure_rates) {
    limits.rates.flops_per_second = cpu::MeasureFmaFlops(set, limits.ctas);
    limits.rates.read_bytes_per_second = cpu::MeasureReadBytesPerSecond(limits.ctas);
  }
  return std::unique_ptr<CpuDevice>(new CpuDevice(set, std::move(limits), std::move(wake)));
}

CpuDevice::CpuDevice(cpu::InstructionSet set, DeviceLimits limits, std::function<void()> wake)
    : limits_(std::move(limits)),
      instruction_set_(set),
      wake_(std::move(wake)),
      memory_(limits_.memory_bytes),
      jobs_(new Job[limits_.max_in_flight]) {
  completions_.reserve(static_cast<size_t>(limits_.max_in_flight));
  for (int32_t i = 0; i < limits_.ctas; ++i) threads_.emplace_back([this] { Work(); });
}

CpuDevice::~CpuDevice() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

absl::StatusOr<BindingId> CpuDevice::Bind(std::shared_ptr<const Plan> plan,
                                          const OperandBlocks& operands) {
  TETRAD_ASSIGN_OR_RETURN(
      std::unique_ptr<CpuBinding> binding,
      CpuBinding::Make(memory_.table(), std::move(plan), operands, limits_.ctas));
  std::lock_guard lock(mutex_);
  return bindings_.Add(binding);
}

absl::Status CpuDevice::Rebind(BindingId id, const OperandBlocks& operands) {
  CpuBinding* binding;
  {
    std::lock_guard lock(mutex_);
    TETRAD_ASSIGN_OR_RETURN(binding, bindings_.BeginRebind(id));
  }
  const absl::Status status = binding->Rebind(operands);
  std::lock_guard lock(mutex_);
  bindings_.EndRebind(id);
  return status;
}

absl::Status CpuDevice::Unbind(BindingId id) {
  std::unique_ptr<CpuBinding> unbound;  // unpins its memory after the lock is gone
  std::lock_guard lock(mutex_);
  TETRAD_ASSIGN_OR_RETURN(unbound, bindings_.Remove(id));
  return absl::OkStatus();
}

absl::Status CpuDevice::Launch(LaneId lane, BindingId binding, uint64_t ticket) {
  if (static_cast<uint32_t>(lane) >= static_cast<uint32_t>(limits_.lanes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("lane=", static_cast<uint32_t>(lane), " must be below ", limits_.lanes));
  }
  {
    std::lock_guard lock(mutex_);
    const uint64_t in_flight = last_job_ - first_job_ + completions_.size();
    if (in_flight >= static_cast<uint64_t>(limits_.max_in_flight)) {
      return ReasonError(Reason::kQueueFull, absl::StrCat("max_in_flight: ", in_flight,
                                                          " launches are under way, the limit"));
    }
    TETRAD_ASSIGN_OR_RETURN(CpuBinding* const launched, bindings_.BeginLaunch(binding));
    Job& job = jobs_[last_job_++ % limits_.max_in_flight];
    job.binding_slot = bindings_.Index(binding);
    job.binding = launched;
    job.ticket = ticket;
    job.active = 0;
    job.exhausted = false;
  }
  work_.notify_one();
  return absl::OkStatus();
}

size_t CpuDevice::Poll(std::span<Completion> out) {
  std::lock_guard lock(mutex_);
  const size_t count = std::min(out.size(), completions_.size());
  std::copy_n(completions_.begin(), count, out.begin());
  completions_.erase(completions_.begin(), completions_.begin() + static_cast<ptrdiff_t>(count));
  return count;
}

void CpuDevice::Work() {
  ::pthread_setname_np(::pthread_self(), "tetrad-device");
  const std::unique_ptr<std::byte, FreeScratch> scratch(
      static_cast<std::byte*>(std::aligned_alloc(cpu::kScratchAlignment, cpu::kScratchBytes)));
  TETRAD_CHECK(scratch != nullptr);
  std::unique_lock lock(mutex_);
  while (true) {
    Job& job = jobs_[first_job_ % limits_.max_in_flight];
    const bool waiting_job = stage_ == Stage::kIdle && first_job_ != last_job_;
    if (waiting_job) {
      stage_ = Stage::kPreparing;
      lock.unlock();
      job.begun_ns = NowNs();
      job.tiles = job.binding->Begin(&job.error_word);
      job.next_tile.store(0, std::memory_order_relaxed);
      lock.lock();
      stage_ = Stage::kRunning;
      if (job.tiles > 1) work_.notify_all();
    } else if (stage_ != Stage::kRunning || job.exhausted) {
      if (stopping_ && first_job_ == last_job_) return;
      work_.wait(lock);
      continue;
    }
    ++job.active;
    lock.unlock();
    int64_t tile;
    while ((tile = job.next_tile.fetch_add(1, std::memory_order_relaxed)) < job.tiles) {
      job.binding->Run(tile, instruction_set_, {scratch.get(), cpu::kScratchBytes});
    }
    lock.lock();
    job.exhausted = true;
    if (--job.active > 0) continue;
    Finish(job);
    // This thread takes the next job itself; the others are needed only once
    // it runs, or to see that the device stops.
    if (stopping_) work_.notify_all();
    lock.unlock();
    wake_();
    lock.lock();
  }
}

// Needs mutex_. The last thread on the oldest job ends it.
void CpuDevice::Finish(Job& job) {
  bindings_.EndLaunch(job.binding_slot);
  completions_.push_back(
      {job.ticket, absl::StatusCode::kOk, job.error_word, NowNs() - job.begun_ns});
  ++first_job_;
  stage_ = Stage::kIdle;
}

}  // namespace tetrad
