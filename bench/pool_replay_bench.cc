// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Replays allocation logs against the pool and against two plain ways to do
// without it, over a simulated device that only keeps books.
//
//   pool_replay_bench [repeats] [log ...]                 one JSON line per log and policy
//   pool_replay_bench --generate SCENARIO SEED FILE [events]   bench/allocation_scenarios.h
//
// The logs in bench/allocation_logs are `--generate serving 1` and `--generate
// churn 1`, with 2000 events each. Policies: `pool`; `direct`, every request its
// own device allocation; `first_fit`, chunks as the pool's with a list of free
// ranges each, searched from the front. All get the same granule of the device
// (2 MiB, that of CUDA's virtual memory calls) and the same events, one thread,
// repeats alternating. Requests that failed in the log are left out.
//
// Times are of the policies' own work and the bookkeeping; what a real device
// takes for each allocation (`allocate_calls`, and as many frees) and each clear
// comes on top.
// `fragmentation` is 1 - peak asked / peak reserved; `block_fragmentation` is the
// same without what are allocations of their own under every policy.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <list>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

#include "bench/allocation_scenarios.h"
#include "engine/allocation_log.h"
#include "engine/pool.h"
#include "engine/simulated_upstream.h"
#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

constexpr int64_t kDeviceGranule = int64_t{2} << 20;
constexpr int64_t kChunkBytes = int64_t{32} << 20;
constexpr int kPasses = 20;  // of a log in one measurement

// Each policy: Allocate() and Free() of blocks; allocations of their own are
// timed by none, being the same call everywhere.
class PoolPolicy {
 public:
  static constexpr const char* kName = "pool";
  explicit PoolPolicy(SimulatedUpstream& upstream)
      : pool_(upstream.upstream(), {.chunk_bytes = kChunkBytes}) {}
  BlockRef Allocate(int64_t bytes) { return pool_.Allocate(bytes).value(); }
  void Free(const BlockRef& block) { pool_.Free(block); }

 private:
  Pool pool_;
};

class DirectPolicy {
 public:
  static constexpr const char* kName = "direct";
  explicit DirectPolicy(SimulatedUpstream& upstream) : upstream_(upstream) {}
  BlockRef Allocate(int64_t bytes) { return {upstream_.Allocate(bytes).value().id, 0, bytes}; }
  void Free(const BlockRef& block) { TETRAD_CHECK(upstream_.Free(block.allocation).ok()); }

 private:
  SimulatedUpstream& upstream_;
};

// The obvious allocator, with the pool's rules for own and empty chunks and its
// duties: clearing what was used, a lock, and knowing what it handed out.
class FirstFitPolicy {
 public:
  static constexpr const char* kName = "first_fit";
  explicit FirstFitPolicy(SimulatedUpstream& upstream) : upstream_(upstream) {}
  ~FirstFitPolicy() {
    for (const Chunk& chunk : chunks_) TETRAD_CHECK(upstream_.Free(chunk.id).ok());
  }

  BlockRef Allocate(int64_t bytes) {
    std::lock_guard lock(mutex_);
    if (bytes > kChunkBytes / 2) return {upstream_.Allocate(bytes).value().id, 0, bytes};
    const int64_t rounded = RoundUp(bytes);
    for (Chunk& chunk : chunks_) {
      for (auto range = chunk.free.begin(); range != chunk.free.end(); ++range) {
        if (range->bytes >= rounded) return Carve(chunk, range, bytes);
      }
    }
    const Allocation allocation = upstream_.Allocate(kChunkBytes).value();
    chunks_.push_back({allocation.id, 0, {{0, allocation.bytes}}});
    return Carve(chunks_.back(), chunks_.back().free.begin(), bytes);
  }

  void Free(const BlockRef& block) {
    std::lock_guard lock(mutex_);
    if (block.bytes > kChunkBytes / 2) {
      TETRAD_CHECK(upstream_.Free(block.allocation).ok());
      return;
    }
    const auto chunk = std::ranges::find(chunks_, block.allocation, &Chunk::id);
    TETRAD_CHECK(chunk != chunks_.end() && taken_.erase({block.allocation, block.offset}) == 1);
    const Range given{block.offset, RoundUp(block.bytes)};
    auto next =
        std::ranges::find_if(chunk->free, [&](const Range& r) { return r.offset > given.offset; });
    auto range = chunk->free.insert(next, given);
    if (next != chunk->free.end() && range->offset + range->bytes == next->offset) {
      range->bytes += next->bytes;
      chunk->free.erase(next);
    }
    if (range != chunk->free.begin()) {
      const auto before = std::prev(range);
      if (before->offset + before->bytes == range->offset) {
        before->bytes += range->bytes;
        chunk->free.erase(range);
      }
    }
    if (!IsEmpty(*chunk) || std::ranges::count_if(chunks_, IsEmpty) < 2) return;
    TETRAD_CHECK(upstream_.Free(chunk->id).ok());
    chunks_.erase(chunk);
  }

 private:
  struct Range {
    int64_t offset, bytes;
  };
  struct Chunk {
    AllocationId id;
    int64_t used_bytes;
    std::list<Range> free;  // by offset
  };
  static int64_t RoundUp(int64_t bytes) {
    constexpr int64_t kGranule = FreeRanges::kGranuleBytes;
    return (bytes + kGranule - 1) / kGranule * kGranule;
  }
  static bool IsEmpty(const Chunk& chunk) {
    return chunk.free.size() == 1 && chunk.free.front().bytes == kChunkBytes;
  }
  BlockRef Carve(Chunk& chunk, std::list<Range>::iterator range, int64_t bytes) {
    const int64_t rounded = RoundUp(bytes);
    const int64_t offset = range->offset;
    range->offset += rounded;
    range->bytes -= rounded;
    if (range->bytes == 0) chunk.free.erase(range);
    taken_.try_emplace({chunk.id, offset}, bytes);
    const int64_t dirty = std::clamp<int64_t>(chunk.used_bytes - offset, 0, rounded);
    chunk.used_bytes = std::max(chunk.used_bytes, offset + rounded);
    if (dirty > 0) TETRAD_CHECK(upstream_.Clear(chunk.id, offset, dirty).ok());
    return {chunk.id, offset, bytes};
  }

  SimulatedUpstream& upstream_;
  std::mutex mutex_;
  std::list<Chunk> chunks_;
  absl::flat_hash_map<std::pair<AllocationId, int64_t>, int64_t> taken_;
};

// A log made ready: what happens to which of so many slots.
struct Step {
  size_t slot;
  int64_t bytes;  // 0: free
};
struct Script {
  std::string name;
  std::vector<Step> steps;  // of blocks; everything is freed in the end
  size_t slots = 0;
  std::vector<int64_t> whole_bytes;  // by step: held in allocations of their own
  int64_t left_out = 0;              // events that failed
};

absl::StatusOr<Script> ReadScript(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  TETRAD_ASSIGN_OR_RETURN(const AllocationTrace trace, ParseAllocationLog(text));
  Script script;
  script.name = path.substr(path.rfind('/') + 1);
  absl::flat_hash_map<uint64_t, size_t> slots;
  int64_t whole_bytes = 0;
  for (const AllocationEvent& event : trace.events) {
    const bool allocates = event.op == AllocationEvent::Op::kAllocate;
    if (event.outcome != absl::StatusCode::kOk) {
      ++script.left_out;
    } else if (event.kind == AllocationEvent::Kind::kWhole) {
      whole_bytes += allocates ? event.bytes : -event.bytes;
    } else if (allocates) {
      slots[event.number] = script.slots;
      script.steps.push_back({script.slots++, event.bytes});
      script.whole_bytes.push_back(whole_bytes);
    } else {
      script.steps.push_back({slots.at(event.number), 0});
      script.whole_bytes.push_back(whole_bytes);
      slots.erase(event.number);
    }
  }
  for (const auto& [number, slot] : slots) {
    script.steps.push_back({slot, 0});
    script.whole_bytes.push_back(whole_bytes);
  }
  if (script.steps.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": no events"));
  return script;
}

template <class Policy, class AfterEach>
void Replay(const Script& script, Policy& policy, std::vector<BlockRef>& slots,
            const AfterEach& after_each) {
  for (size_t i = 0; i < script.steps.size(); ++i) {
    const Step& step = script.steps[i];
    if (step.bytes > 0) {
      slots[step.slot] = policy.Allocate(step.bytes);
    } else {
      policy.Free(slots[step.slot]);
    }
    after_each(i);
  }
}

template <class Policy>
class Bench {
 public:
  explicit Bench(const Script& script) : script_(script), slots_(script.slots) { Account(); }

  void Measure() {
    SimulatedUpstream upstream({.granule_bytes = kDeviceGranule});
    Policy policy(upstream);
    Replay(script_, policy, slots_, [](size_t) {});  // the pool's steady state
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kPasses; ++i) Replay(script_, policy, slots_, [](size_t) {});
    const auto end = std::chrono::steady_clock::now();
    times_.push_back(std::chrono::duration<double, std::nano>(end - start).count() / kPasses /
                     static_cast<double>(script_.steps.size()));
  }

  void Print() {
    std::ranges::sort(times_);
    std::printf(
        "{\"log\": \"%s\", \"policy\": \"%s\", \"block_events\": %zu, \"left_out\": %lld, "
        "\"repeats\": %zu, \"ns_per_op\": %.1f, \"ns_best\": %.1f, \"ns_worst\": %.1f, "
        "\"peak_asked_bytes\": %lld, \"peak_reserved_bytes\": %lld, \"fragmentation\": %.4f, "
        "\"block_peak_asked_bytes\": %lld, \"block_peak_reserved_bytes\": %lld, "
        "\"block_fragmentation\": %.4f, \"allocate_calls\": %lld, \"clear_calls\": %lld, "
        "\"cleared_bytes\": %lld, "
        "\"device_granule_bytes\": %lld, \"chunk_bytes\": %lld}\n",
        script_.name.c_str(), Policy::kName, script_.steps.size(), Long(script_.left_out),
        times_.size(), times_[times_.size() / 2], times_.front(), times_.back(), Long(asked_),
        Long(reserved_), Share(asked_, reserved_), Long(block_asked_), Long(block_reserved_),
        Share(block_asked_, block_reserved_), Long(allocate_calls_), Long(clear_calls_),
        Long(cleared_bytes_), Long(kDeviceGranule), Long(kChunkBytes));
    std::fflush(stdout);
  }

 private:
  static long long Long(int64_t value) { return value; }
  static double Share(int64_t asked, int64_t reserved) {
    return 1 - static_cast<double>(asked) / static_cast<double>(reserved);
  }
  // One replay that is not timed: peaks and what is asked of the device.
  void Account() {
    SimulatedUpstream upstream({.granule_bytes = kDeviceGranule});
    int64_t asked = 0;
    std::vector<int64_t> bytes(script_.slots);
    {
      Policy policy(upstream);
      Replay(script_, policy, slots_, [&](size_t i) {
        const Step& step = script_.steps[i];
        asked += step.bytes > 0 ? step.bytes : -bytes[step.slot];
        bytes[step.slot] = step.bytes;
        const int64_t wholes = script_.whole_bytes[i];
        const int64_t reserved = upstream.stats().bytes;
        block_asked_ = std::max(block_asked_, asked);
        block_reserved_ = std::max(block_reserved_, reserved);
        asked_ = std::max(asked_, asked + wholes);
        reserved_ = std::max(reserved_, reserved + wholes);
      });
    }
    const SimulatedUpstream::Stats stats = upstream.stats();
    TETRAD_CHECK(stats.allocations == 0 && asked == 0);
    block_reserved_ = std::max(block_reserved_, stats.peak_bytes);
    allocate_calls_ = stats.allocate_calls;
    clear_calls_ = stats.clear_calls;
    cleared_bytes_ = stats.cleared_bytes;
  }

  const Script& script_;
  std::vector<BlockRef> slots_;
  std::vector<double> times_;
  int64_t asked_ = 0, reserved_ = 0, block_asked_ = 0, block_reserved_ = 0;
  int64_t allocate_calls_ = 0, clear_calls_ = 0, cleared_bytes_ = 0;
};

void BenchLog(const Script& script, int repeats) {
  Bench<PoolPolicy> pool(script);
  Bench<DirectPolicy> direct(script);
  Bench<FirstFitPolicy> first_fit(script);
  for (int i = 0; i < repeats; ++i) {
    pool.Measure();
    direct.Measure();
    first_fit.Measure();
  }
  pool.Print();
  direct.Print();
  first_fit.Print();
}

absl::Status Generate(std::span<char*> arguments) {
  if (arguments.size() < 5) {
    return absl::InvalidArgumentError("--generate needs SCENARIO SEED FILE [events]");
  }
  const uint64_t seed = std::strtoull(arguments[3], nullptr, 10);
  const int64_t events = arguments.size() > 5 ? std::atoll(arguments[5]) : 2000;
  int64_t now_us = 0;
  TETRAD_ASSIGN_OR_RETURN(const auto log,
                          AllocationLog::Open(arguments[4], {.now_us = [&] { return now_us; }}));
  return GenerateScenario(arguments[2], seed, events, *log, now_us);
}

absl::Status Main(std::span<char*> arguments) {
  if (arguments.size() > 1 && arguments[1] == std::string_view("--generate")) {
    return Generate(arguments);
  }
  const int repeats = arguments.size() > 1 ? std::max(1, std::atoi(arguments[1])) : 9;
  std::vector<std::string> logs(arguments.begin() + std::min<size_t>(2, arguments.size()),
                                arguments.end());
  if (logs.empty()) logs = {"bench/allocation_logs/serving.log", "bench/allocation_logs/churn.log"};
  for (const std::string& path : logs) {
    TETRAD_ASSIGN_OR_RETURN(const Script script, ReadScript(path));
    BenchLog(script, repeats);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace tetrad

int main(int argc, char** argv) {
  const absl::Status status = tetrad::Main({argv, static_cast<size_t>(argc)});
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
