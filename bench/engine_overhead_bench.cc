// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the engine adds to a launch, on the CPU backend with next to nothing to
// compute (one row, 16 columns, K = 32), and how that grows with the number of
// cached plans and of requests under way.
//
//   engine_overhead_bench [REPEATS]
//
// All threads run on one core: on several, where the system puts the two that
// take turns changes a request's time by half, whatever the engine does.
//
// Every request goes the whole way: handle, plan, staging, copy in, queue,
// device, completion, copy out, and every output is compared. A request's
// answer sends the next one, so that a fixed number is always under way. Of the
// plans cached either one is used, which shows what the structures cost, or all
// in turn, which adds that no cache of the processor helps. One JSON line for
// each case: wall and processor time a request, medians of alternating repeats
// with the fastest and slowest, and the ratios to one plan with the same number
// under way, and to one under way with the same plans.
#include <algorithm>
#include <atomic>
#include <compare>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <sched.h>
#include <time.h>

#include "engine/cpu_device.h"
#include "engine/engine.h"
#include "engine/steady_clock.h"
#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

constexpr int32_t kN = 16, kK = 32;
struct Plans {
  int cached, used;
  auto operator<=>(const Plans&) const = default;
};
constexpr Plans kPlans[] = {{1, 1}, {100, 1}, {10'000, 1}, {100, 100}, {10'000, 10'000}};
constexpr Plans kOnePlan = kPlans[0];
constexpr int kUnderWay[] = {1, 32, 1'000};
constexpr int kRequests = 20'000;  // of one repeat

double CpuSeconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Times {
  std::vector<double> us;
  double median() {
    std::sort(us.begin(), us.end());
    return us[us.size() / 2];
  }
};

// One engine with so many plans in its cache.
class Load {
 public:
  explicit Load(int plans) {
    EngineOptions options;
    options.plan_capacity = plans;
    options.queue_depth = 2048;
    auto engine = Engine::Create(
        [](std::function<void()> wake) -> absl::StatusOr<std::unique_ptr<Device>> {
          return CpuDevice::Create(
              {.threads = 1, .memory_bytes = int64_t{2} << 30, .measure_rates = false},
              std::move(wake));
        },
        options);
    TETRAD_CHECK(engine.ok());
    engine_ = *std::move(engine);
    Register();
    for (int i = 0; i < plans; ++i) {
      SignatureRequest signature;
      signature.weights = "w";
      signature.m = {1};
      signature.c_stride = kN + i;  // another signature, the same work
      const auto prepared = engine_->Prepare("bench", signature);
      TETRAD_CHECK(prepared.ok());
      ExecuteRequest& request = requests_.emplace_back();
      request.client = "bench";
      request.plan = prepared->handle;
      request.operands.activations = activations_;
      request.operands.activation_scales = scales_;
    }
  }

  // Sends `count` requests over `used` plans, `under_way` at a time; seconds taken.
  double Run(int count, int under_way, int used) {
    used_ = static_cast<uint64_t>(used);
    to_send_ = count;
    to_answer_ = count;
    const Instant began = SteadyNow();
    for (int i = 0; i < under_way; ++i) Send();
    for (int left = to_answer_.load(); left > 0; left = to_answer_.load()) to_answer_.wait(left);
    return 1e-9 * static_cast<double>(SteadyNow() - began);
  }
  bool correct() const { return wrong_ == 0; }
  EngineStats stats() const { return engine_->Stats(); }

 private:
  void Register() {
    WeightsSpec spec;
    spec.name = "w";
    spec.groups = {{kN, kK}};
    WeightsRegistry& weights = engine_->weights();
    const auto version = weights.Begin(std::move(spec));
    TETRAD_CHECK(version.ok());
    std::vector<std::byte> codes(kN * kK / 2, std::byte{0x22});
    std::vector<std::byte> scales(kN * kK / 16, std::byte{0x38});
    TETRAD_CHECK(weights.Write("w", *version, WeightsOperand::kCodes, 0, codes).ok());
    TETRAD_CHECK(weights.Write("w", *version, WeightsOperand::kScales, 0, scales).ok());
    TETRAD_CHECK(weights.Seal("w", *version).ok());
  }

  void Send() {
    if (to_send_.fetch_sub(1) <= 0) return;
    const ExecuteRequest& request = requests_[next_.fetch_add(1) % used_];
    engine_->Execute(request, [this](absl::StatusOr<Executed> executed) {
      if (!executed.ok() || !Correct(*executed)) ++wrong_;
      executed = absl::CancelledError();  // its staging serves the next one
      Send();
      to_answer_.fetch_sub(1);
      to_answer_.notify_one();
    });
  }

  // Every product of codes 1 and scales 1 over K is K, in FP16 0x5000 for 32.
  static bool Correct(const Executed& executed) {
    uint16_t row[kN];
    std::byte* const to = reinterpret_cast<std::byte*>(row);
    if (!executed.CopyOutput({to, sizeof(row)}).ok()) return false;
    return std::all_of(std::begin(row), std::end(row), [](uint16_t c) { return c == 0x5000; });
  }

  std::unique_ptr<Engine> engine_;
  const std::string activations_ = std::string(kK / 2, '\x22');
  const std::string scales_ = std::string(kK / 16, '\x38');
  std::vector<ExecuteRequest> requests_;
  std::atomic<int> to_send_{0}, to_answer_{0};
  std::atomic<int64_t> wrong_{0};
  std::atomic<uint64_t> next_{0};
  uint64_t used_ = 1;
};

void StayOnOneCore() {
  cpu_set_t all;
  TETRAD_CHECK(::sched_getaffinity(0, sizeof(all), &all) == 0);
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &all)) --last;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  TETRAD_CHECK(::sched_setaffinity(0, sizeof(one), &one) == 0);
}

int Main(int repeats) {
  StayOnOneCore();
  std::map<int, std::unique_ptr<Load>> loads;
  for (const Plans& plans : kPlans) {
    std::unique_ptr<Load>& load = loads[plans.cached];
    if (load == nullptr) load = std::make_unique<Load>(plans.cached);
  }
  std::map<std::pair<Plans, int>, Times> wall, cpu;
  for (int repeat = -1; repeat < repeats; ++repeat) {  // the first warms up
    for (const int under_way : kUnderWay) {
      for (const Plans& plans : kPlans) {
        const double cpu_before = CpuSeconds();
        const double seconds = loads[plans.cached]->Run(kRequests, under_way, plans.used);
        const double cpu_seconds = CpuSeconds() - cpu_before;
        if (repeat < 0) continue;
        wall[{plans, under_way}].us.push_back(seconds / kRequests * 1e6);
        cpu[{plans, under_way}].us.push_back(cpu_seconds / kRequests * 1e6);
      }
    }
  }
  bool correct = true;
  for (const int under_way : kUnderWay) {
    for (const Plans& plans : kPlans) {
      Times& times = wall[{plans, under_way}];
      const double median = times.median();
      const double cpu_median = cpu[{plans, under_way}].median();
      const Load& load = *loads[plans.cached];
      const EngineStats stats = load.stats();
      const bool right = load.correct() && stats.plans_cached == plans.cached;
      correct = correct && right;
      std::printf(
          "{\"plans_cached\": %d, \"plans_used\": %d, \"under_way\": %d, \"requests\": %d, "
          "\"repeats\": %d, \"us\": %.3f, \"best_us\": %.3f, \"worst_us\": %.3f, \"cpu_us\": %.3f, "
          "\"ratio_to_one_plan\": %.3f, \"cpu_ratio_to_one_plan\": %.3f, "
          "\"ratio_to_one_under_way\": %.3f, \"cpu_ratio_to_one_under_way\": %.3f, "
          "\"evictions\": %lld, \"correct\": %s}\n",
          plans.cached, plans.used, under_way, kRequests, repeats, median, times.us.front(),
          times.us.back(), cpu_median, median / wall[{kOnePlan, under_way}].median(),
          cpu_median / cpu[{kOnePlan, under_way}].median(), median / wall[{plans, 1}].median(),
          cpu_median / cpu[{plans, 1}].median(), static_cast<long long>(stats.plan_evictions),
          right ? "true" : "false");
    }
  }
  return correct ? 0 : 1;
}

}  // namespace
}  // namespace tetrad

int main(int argc, char** argv) {
  return tetrad::Main(argc > 1 ? std::max(1, std::atoi(argv[1])) : 9);
}
