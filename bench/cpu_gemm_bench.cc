// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The CPU grouped GEMM beside the best general library for the same task:
// oneDNN's FP32 matmul after expanding the NVFP4 operands. Both use all cores,
// both start from the same NVFP4 bytes, and their repetitions alternate, so that
// a disturbed moment hits both.
//
//   cpu_gemm_bench [repeats] [shape ...]      one JSON line per shape
//
// The peer expands its operands with this project's own vector code on all
// cores (a plain loop would only make it slower), the weights in every call, as
// the task has them packed; primitives are made beforehand; its results stay
// FP32, while ours are converted to FP16. Both are checked: the data is exact.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include <dnnl.hpp>

#include "kernels/aligned_buffer.h"
#include "kernels/compare.h"
#include "kernels/cpu/grouped_gemm.h"
#include "kernels/cpu/rates.h"
#include "kernels/cpu/run_groups.h"
#include "kernels/sample.h"
#include "kernels/shapes.h"

namespace tetrad {
namespace {

int Cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

template <class Work>
double Milliseconds(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  const auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double, std::milli>(end - start).count();
}

// The same grouped GEMM by oneDNN.
class Peer {
 public:
  explicit Peer(const Operands& operands)
      : types_(operands.types()), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    for (const GroupProblem& group : operands.groups()) {
      if (group.m > 0) groups_.push_back(Prepare(group));
    }
  }

  void Run() {
    for (Group& group : groups_) {
      Expand(group.problem.a, group.problem.a_scales, types_.a_scale_layout, group.problem.m,
             group.problem.k, group.a.as<float>());
      Expand(group.problem.b, group.problem.b_scales, types_.b_scale_layout, group.problem.n,
             group.problem.k, group.b.as<float>());
      group.matmul.execute(stream_, group.arguments);
      stream_.wait();
    }
  }

  // Puts the results where ours go, converted, so that one check serves both.
  void StoreAsFp16() const {
    for (const Group& group : groups_) {
      const GroupProblem& problem = group.problem;
      for (int32_t row = 0; row < problem.m; ++row) {
        for (int32_t column = 0; column < problem.n; ++column) {
          const float acc = group.c.as<float>()[row * int64_t{problem.n} + column];
          const auto bits =
              static_cast<uint16_t>(OutputBits(OutputType::kFp16, ScaledValue(problem, row, acc)));
          std::memcpy(static_cast<uint16_t*>(problem.c) + row * problem.c_stride + column, &bits,
                      sizeof(bits));
        }
      }
    }
  }

 private:
  struct Group {
    GroupProblem problem;
    AlignedBuffer a, b, c;
    dnnl::matmul matmul;
    std::unordered_map<int, dnnl::memory> arguments;
  };

  Group Prepare(const GroupProblem& problem) {
    using Memory = dnnl::memory;
    const int64_t m = problem.m;
    const int64_t n = problem.n;
    const int64_t k = problem.k;
    Group group{problem,
                AlignedBuffer(static_cast<size_t>(m * k) * sizeof(float)),
                AlignedBuffer(static_cast<size_t>(n * k) * sizeof(float)),
                AlignedBuffer(static_cast<size_t>(m * n) * sizeof(float)),
                {},
                {}};
    const Memory::desc a({m, k}, Memory::data_type::f32, Memory::dims{k, 1});
    const Memory::desc b({k, n}, Memory::data_type::f32, Memory::dims{1, k});
    const Memory::desc c({m, n}, Memory::data_type::f32, Memory::dims{n, 1});
#if DNNL_VERSION_MAJOR >= 3
    group.matmul = dnnl::matmul(dnnl::matmul::primitive_desc(engine_, a, b, c));
#else
    group.matmul = dnnl::matmul(dnnl::matmul::primitive_desc({a, b, c}, engine_));
#endif
    group.arguments = {{DNNL_ARG_SRC, Memory(a, engine_, group.a.data())},
                       {DNNL_ARG_WEIGHTS, Memory(b, engine_, group.b.data())},
                       {DNNL_ARG_DST, Memory(c, engine_, group.c.data())}};
    return group;
  }

  static void Expand(const uint8_t* codes, const uint8_t* scales, ScaleLayout layout, int64_t rows,
                     int64_t k, float* out) {
    constexpr int64_t kRowsAtOnce = 32;
    const cpu::InstructionSet set = cpu::BestInstructionSet();
    std::atomic<int64_t> next{0};
    const auto work = [&] {
      for (int64_t row = next.fetch_add(kRowsAtOnce); row < rows;
           row = next.fetch_add(kRowsAtOnce)) {
        cpu::DequantizeRows(set, codes, scales, layout, k, row, std::min(kRowsAtOnce, rows - row),
                            out + row * k, k);
      }
    };
    std::vector<std::jthread> workers;
    for (int i = 1; i < Cores(); ++i) workers.emplace_back(work);
    work();
  }

  ProblemTypes types_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<Group> groups_;
};

struct Times {
  double median = 0, best = 0, worst = 0;
};

Times Summarise(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front(), times.back()};
}

bool Correct(const Operands& operands) {
  const VerifyOptions options{.threads = Cores(), .max_products = 1'000'000'000};
  return Verify(operands.types(), operands.groups(), options).pass;
}

// True if both sides are correct.
bool Bench(const NamedShape& shape, int repeats) {
  const SampleOptions options{
      .types = {.a_scale_layout = ScaleLayout::kBlocked, .b_scale_layout = ScaleLayout::kBlocked},
      .kind = DataKind::kContest};
  Operands operands(shape.groups, options);
  Peer peer(operands);
  const cpu::InstructionSet set = cpu::BestInstructionSet();
  const auto run_ours = [&] {
    cpu::RunGroups(set, operands.types(), operands.groups(), {}, Cores());
  };
  run_ours();
  const bool ours_correct = Correct(operands);
  peer.Run();
  operands.ClearOutput();
  peer.StoreAsFp16();
  const bool peer_correct = Correct(operands);

  std::vector<double> ours;
  std::vector<double> theirs;
  for (int i = 0; i < repeats; ++i) {
    ours.push_back(Milliseconds(run_ours));
    theirs.push_back(Milliseconds([&] { peer.Run(); }));
  }
  const double flops_rate = cpu::MeasureFmaFlops(set, Cores());
  const double read_rate = cpu::MeasureReadBytesPerSecond(Cores());
  double flops = 0;
  double bytes = 0;
  for (const GroupShape& group : shape.groups) {
    if (group.m == 0) continue;
    flops += 2.0 * group.m * group.n * group.k;
    bytes += static_cast<double>(group.m + group.n) * group.k * 9 / 16 + 2.0 * group.m * group.n;
  }
  const double floor_ms = std::max(flops / flops_rate, bytes / read_rate) * 1e3;
  const Times us = Summarise(ours);
  const Times them = Summarise(theirs);
  std::printf(
      "{\"shape\": \"%s\", \"set\": \"%s\", \"cores\": %d, \"repeats\": %d, \"ours_ms\": %.2f, "
      "\"ours_best_ms\": %.2f, \"ours_worst_ms\": %.2f, \"peer\": \"oneDNN %d.%d.%d\", "
      "\"peer_ms\": %.2f, \"peer_best_ms\": %.2f, \"peer_worst_ms\": %.2f, \"ratio\": %.3f, "
      "\"best_ratio\": %.3f, \"gflops\": %.1f, \"fma_gflops\": %.1f, \"read_gb_s\": %.1f, "
      "\"floor_ms\": %.2f, \"share_of_floor\": %.3f, \"ours_correct\": %s, "
      "\"peer_correct\": %s}\n",
      shape.name.data(), cpu::Name(set).data(), Cores(), repeats, us.median, us.best, us.worst,
      dnnl_version()->major, dnnl_version()->minor, dnnl_version()->patch, them.median, them.best,
      them.worst, them.median / us.median, them.best / us.best, flops / us.median / 1e6,
      flops_rate / 1e9, read_rate / 1e9, floor_ms, floor_ms / us.median,
      ours_correct ? "true" : "false", peer_correct ? "true" : "false");
  std::fflush(stdout);
  return ours_correct && peer_correct;
}

int Main(std::span<char*> arguments) {
  const int repeats = arguments.size() > 1 ? std::max(1, std::atoi(arguments[1])) : 9;
  std::vector<NamedShape> shapes(std::begin(kBenchmarkShapes), std::end(kBenchmarkShapes));
  shapes.push_back(kDecodeShapes[0]);
  bool correct = true;
  for (const NamedShape& shape : shapes) {
    const bool wanted = arguments.size() <= 2 ||
                        std::any_of(arguments.begin() + 2, arguments.end(),
                                    [&](std::string_view name) { return name == shape.name; });
    if (wanted) correct = Bench(shape, repeats) && correct;
  }
  return correct ? 0 : 1;
}

}  // namespace
}  // namespace tetrad

int main(int argc, char** argv) {
  try {
    return tetrad::Main({argv, static_cast<size_t>(argc)});
  } catch (const dnnl::error& error) {
    std::fprintf(stderr, "oneDNN: %s\n", error.what());
    return 1;
  }
}
