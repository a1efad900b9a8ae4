// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// How fast weights are registered from a checkpoint, beside a plain copy of the
// same bytes to the same device in the same run, and what that costs in memory
// of the host.
//
//   register_bench [cpu|cuda [GIB [NAMES [THREADS [N K]]]]]   cpu 4 16 0 4096 4096
//
// One safetensors file of GIB gibibytes of experts [N, K], random codes and
// scales, is made in memory-backed storage (/dev/shm) and registered under NAMES
// names by THREADS threads (0: as many as the daemon would take). As many names
// as the device has room for are held at a time, then the oldest is dropped,
// outside the time measured. Bytes of the last name are read back and compared.
//
// The copy: from memory of the host to the device, as fast as it goes
// (register_device.h). One JSON line: GB/s of registering
// (the median over the names with the slowest and fastest, and over all of the
// time) and of the copy, their ratio, and how the resident memory grew meanwhile
// beyond what it was with the file and the device there: all of it at its peak
// (on the CPU that has the weights in it), and the anonymous part.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <malloc.h>
#include <time.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "bench/register_device.h"
#include "engine/checkpoint_load.h"
#include "engine/engine.h"
#include "engine/machine_limits.h"
#include "engine/steady_clock.h"
#include "engine/support/status_macros.h"
#include "engine/support/unique_fd.h"
#include "kernels/nvfp4.h"
#include "kernels/random.h"
#include "kernels/sm90/pack.h"

namespace tetrad {
namespace {

constexpr size_t kBlockBytes = size_t{16} << 20;  // of writing
constexpr int64_t kSampleBytes = 4096;            // of a comparison

struct Arguments {
  std::string device = "cpu";
  double gib = 4;
  int names = 16, threads = 0;
  int32_t n = 4096, k = 4096;
};

// A folder in memory-backed storage with one checkpoint.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(const Arguments& arguments) {
    code_bytes_ = CodeBytes(arguments.n, arguments.k);
    scale_bytes_ = ScalePlaneBytes(ScaleLayout::kLinear, arguments.n, arguments.k);
    const double wanted = arguments.gib * double{1 << 30};
    experts_ = std::max<int64_t>(
        1, static_cast<int64_t>(wanted / static_cast<double>(code_bytes_ + scale_bytes_)));
    std::string path = "/dev/shm/tetrad_register_bench_XXXXXX";
    TETRAD_CHECK(::mkdtemp(path.data()) != nullptr);
    path_ = path;
    const std::string header = Header(arguments.n, arguments.k);
    data_begin_ = 8 + header.size();
    fd_ = UniqueFd(::open((path + "/model.safetensors").c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
    TETRAD_CHECK(fd_);
    std::string start(8, '\0');
    const uint64_t header_bytes = header.size();
    std::memcpy(start.data(), &header_bytes, 8);
    Append(start + header);
    WriteData();
  }
  ~CheckpointFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  CheckpointFolder(const CheckpointFolder&) = delete;

  const std::string& path() const { return path_; }
  int64_t experts() const { return experts_; }
  int64_t bytes() const { return experts_ * (code_bytes_ + scale_bytes_); }
  int64_t operand_bytes(WeightsOperand operand) const {
    return experts_ * (operand == WeightsOperand::kCodes ? code_bytes_ : scale_bytes_);
  }
  // Bytes of an operand, concatenated over the experts, within one of them.
  void Read(WeightsOperand operand, int64_t offset, std::span<std::byte> out) const {
    const bool codes = operand == WeightsOperand::kCodes;
    const int64_t plane = codes ? code_bytes_ : scale_bytes_;
    const int64_t at = static_cast<int64_t>(data_begin_) +
                       offset / plane * (code_bytes_ + scale_bytes_) + (codes ? 0 : code_bytes_) +
                       offset % plane;
    TETRAD_CHECK(::pread(fd_.get(), out.data(), out.size(), at) ==
                 static_cast<ssize_t>(out.size()));
  }
  int64_t Within(WeightsOperand operand, int64_t offset, int64_t most) const {
    const int64_t plane = operand == WeightsOperand::kCodes ? code_bytes_ : scale_bytes_;
    return std::min(most, plane - offset % plane);
  }

 private:
  std::string Header(int32_t n, int32_t k) const {
    std::string json = "{";
    int64_t at = 0;
    const auto add = [&](const std::string& name, const char* type, const std::string& shape,
                         int64_t bytes) {
      absl::StrAppend(&json, json.size() > 1 ? "," : "", "\"", name, "\":{\"dtype\":\"", type,
                      "\",\"shape\":[", shape, "],\"data_offsets\":[", at, ",", at + bytes, "]}");
      at += bytes;
    };
    for (int64_t e = 0; e < experts_; ++e) {
      add(absl::StrCat("e.", e, ".weight"), "U8", absl::StrCat(n, ",", k / 2), code_bytes_);
      add(absl::StrCat("e.", e, ".weight_scale"), "F8_E4M3", absl::StrCat(n, ",", k / kScaleBlock),
          scale_bytes_);
    }
    for (int64_t e = 0; e < experts_; ++e)
      add(absl::StrCat("e.", e, ".weight_scale_2"), "F32", "", 4);
    return json + "}";
  }

  void Append(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t wrote = ::write(fd_.get(), bytes.data(), bytes.size());
      TETRAD_CHECK(wrote > 0);
      bytes.remove_prefix(static_cast<size_t>(wrote));
    }
  }

  // Codes and scales are all legal as scales (below 0x7F): one generator does.
  void WriteData() {
    Random random(1);
    std::string block(kBlockBytes, '\0');
    for (int64_t left = bytes(); left > 0;) {
      for (size_t i = 0; i < block.size(); i += 8) {
        const uint64_t word = random.Next() & 0x7E7E7E7E7E7E7E7Eu;
        std::memcpy(block.data() + i, &word, 8);
      }
      const int64_t bytes = std::min<int64_t>(left, static_cast<int64_t>(block.size()));
      Append(std::string_view(block).substr(0, static_cast<size_t>(bytes)));
      left -= bytes;
    }
    const float factor = 0x1p-8f;
    std::string factors;
    for (int64_t e = 0; e < experts_; ++e) {
      factors.append(reinterpret_cast<const char*>(&factor), sizeof(factor));
    }
    Append(factors);
  }

  std::string path_;
  UniqueFd fd_;
  int64_t experts_ = 0, code_bytes_ = 0, scale_bytes_ = 0;
  size_t data_begin_ = 0;
};

double ProcessorSeconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double Seconds(Instant began) { return 1e-9 * static_cast<double>(SteadyNow() - began); }

absl::StatusOr<DeviceUnderTest> FindDevice(const std::string& name) {
  if (name == "cpu") return CpuUnderTest();
#ifdef TETRAD_WITH_CUDA
  if (name == "cuda") return CudaUnderTest();
#endif
  return absl::NotFoundError(absl::StrCat("this build has no device '", name, "'"));
}

int64_t StatusBytes(const char* field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field)) return std::atoll(line.c_str() + std::strlen(field) + 1) * 1024;
  }
  return 0;
}

void ForgetPeak() {
  const UniqueFd fd(::open("/proc/self/clear_refs", O_WRONLY));
  TETRAD_CHECK(fd && ::write(fd.get(), "5", 1) == 1);
}

// Whole experts, packed here.
bool SamePacked(const CheckpointFolder& folder, const Device& device,
                const WeightsVersion& weights) {
  constexpr int kExperts = 16;
  Random random(2);
  const auto [n, k] = weights.spec().groups[0];
  const auto packed_bytes = static_cast<size_t>(sm90::PackedBytes(n, k));
  std::vector<uint8_t> codes(static_cast<size_t>(CodeBytes(n, k)));
  std::vector<uint8_t> scales(
      static_cast<size_t>(ScalePlaneBytes(weights.spec().scale_layout, n, k)));
  std::vector<uint8_t> want(packed_bytes), got(packed_bytes);
  for (int sample = 0; sample < kExperts; ++sample) {
    const auto expert =
        static_cast<int64_t>(random.Next() % static_cast<uint64_t>(folder.experts()));
    folder.Read(WeightsOperand::kCodes, expert * std::ssize(codes),
                std::as_writable_bytes(std::span(codes)));
    folder.Read(WeightsOperand::kScales, expert * std::ssize(scales),
                std::as_writable_bytes(std::span(scales)));
    sm90::PackWeights({.codes = codes.data(),
                       .scales = scales.data(),
                       .packed = want.data(),
                       .weights = {.n = n, .k = k, .scale_layout = weights.spec().scale_layout}});
    const BlockRef block = weights.codes();
    if (!device
             .Read(block.allocation, block.offset + expert * std::ssize(want),
                   std::as_writable_bytes(std::span(got)))
             .ok() ||
        want != got) {
      return false;
    }
  }
  return true;
}

bool Same(const CheckpointFolder& folder, const Device& device, const WeightsVersion& weights) {
  if (weights.layout() == ScaleLayout::kPacked) return SamePacked(folder, device, weights);
  Random random(2);
  std::byte want[kSampleBytes], got[kSampleBytes];
  for (const WeightsOperand operand : {WeightsOperand::kCodes, WeightsOperand::kScales}) {
    const BlockRef block = operand == WeightsOperand::kCodes ? weights.codes() : weights.scales();
    if (block.bytes != folder.operand_bytes(operand)) return false;
    for (int sample = 0; sample < 4096; ++sample) {
      const int64_t at = static_cast<int64_t>(random.Next() % static_cast<uint64_t>(block.bytes));
      const auto bytes = static_cast<size_t>(folder.Within(operand, at, kSampleBytes));
      folder.Read(operand, at, std::span(want, bytes));
      if (!device.Read(block.allocation, block.offset + at, std::span(got, bytes)).ok() ||
          std::memcmp(want, got, bytes) != 0) {
        return false;
      }
    }
  }
  return true;
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "register_bench: %s\n", status.ToString().c_str());
  return 1;
}

int Main(const Arguments& arguments) {
  const absl::StatusOr<DeviceUnderTest> kind = FindDevice(arguments.device);
  if (!kind.ok()) return Fail(kind.status());
  const CheckpointFolder folder(arguments);
  const int threads =
      arguments.threads > 0 ? arguments.threads : DefaultLoadThreads(ReadMachineLimits().threads);
  Device* device = nullptr;
  const auto engine = Engine::Create(
      [&](std::function<void()> wake) -> absl::StatusOr<std::unique_ptr<Device>> {
        auto made = kind->make(std::move(wake));
        if (made.ok()) device = made->get();
        return made;
      },
      {});
  if (!engine.ok()) return Fail(engine.status());
  const double gigabytes = 1e-9 * static_cast<double>(folder.bytes());
  std::vector<double> copy_rates;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const auto seconds = kind->copy_seconds(*device, folder.bytes(), threads);
    if (!seconds.ok()) return Fail(seconds.status());
    copy_rates.push_back(gigabytes / *seconds);
  }
  std::ranges::sort(copy_rates);

  WeightsRegistry& registry = (*engine)->weights();
  const absl::StatusOr<Root> root = Root::Open(folder.path());
  TETRAD_CHECK(root.ok());
  // As the daemon has them: there before a load, and waiting between loads.
  std::vector<std::jthread> helpers;
  const LoadTeam team{threads - 1, [&](absl::AnyInvocable<void()>&& job) {
                        helpers.emplace_back(std::move(job));
                        return true;
                      }};
  ::malloc_trim(0);  // what was used until now would hide what a load takes
  const int64_t anonymous_before = StatusBytes("RssAnon");
  const int64_t resident_before = StatusBytes("VmRSS");
  ForgetPeak();
  int64_t anonymous_peak = 0;
  std::vector<double> rates;
  double total_seconds = 0, processor_seconds = 0;
  std::deque<std::string> held;
  size_t most_held = 0;
  for (int i = 0; i < arguments.names; ++i) {
    const MemoryUse use = device->memory_use();
    if (!held.empty() && use.limit_bytes - use.allocated_bytes < folder.bytes() + (64 << 20)) {
      TETRAD_CHECK(registry.Drop(held.front()).ok());
      held.pop_front();
    }
    while ((*engine)->Stats().reclaimable > 0) std::this_thread::yield();
    const std::string name = absl::StrCat("w", i);
    Instant sampled = 0;
    const double processor_before = ProcessorSeconds();
    const Instant began = SteadyNow();
    const auto loaded = LoadCheckpoint(*root, {.directory = "", .pattern = "e.{expert}"}, name,
                                       registry, team, [&](int64_t, int64_t) {
                                         if (SteadyNow() - sampled > 50'000'000) {
                                           anonymous_peak =
                                               std::max(anonymous_peak, StatusBytes("RssAnon"));
                                           sampled = SteadyNow();
                                         }
                                         return true;
                                       });
    const double seconds = Seconds(began);
    helpers.clear();
    processor_seconds += ProcessorSeconds() - processor_before;
    if (!loaded.ok()) return Fail(loaded.status());
    total_seconds += seconds;
    rates.push_back(gigabytes / seconds);
    held.push_back(name);
    most_held = std::max(most_held, held.size());
  }
  const int64_t resident_peak = StatusBytes("VmHWM");
  const bool same = Same(folder, *device, **registry.Resolve(held.back()));
  std::ranges::sort(rates);
  const double all = gigabytes * arguments.names / total_seconds;
  const double copy = copy_rates[copy_rates.size() / 2];
  std::printf(
      "{\"device_kind\": \"%s\", \"file_bytes\": %lld, \"experts\": %lld, \"n\": %d, \"k\": %d, "
      "\"names\": %d, \"names_held\": %zu, \"threads\": %d, \"gb_s\": %.3f, \"slowest_gb_s\": "
      "%.3f, "
      "\"fastest_gb_s\": %.3f, \"all_gb_s\": %.3f, \"cpu_s_per_gb\": %.3f, \"copy\": \"%s\", "
      "\"copy_gb_s\": %.3f, "
      "\"ratio\": %.3f, \"anonymous_growth_bytes\": %lld, \"resident_growth_bytes\": %lld, "
      "\"correct\": %s}\n",
      arguments.device.c_str(), static_cast<long long>(folder.bytes()),
      static_cast<long long>(folder.experts()), arguments.n, arguments.k, arguments.names,
      most_held, threads, rates[rates.size() / 2], rates.front(), rates.back(), all,
      processor_seconds / (gigabytes * arguments.names), kind->copy, copy, all / copy,
      static_cast<long long>(anonymous_peak - anonymous_before),
      static_cast<long long>(resident_peak - resident_before), same ? "true" : "false");
  return same ? 0 : 1;
}

}  // namespace
}  // namespace tetrad

int main(int argc, char** argv) {
  tetrad::Arguments arguments;
  if (argc > 1) arguments.device = argv[1];
  if (argc > 2) arguments.gib = std::atof(argv[2]);
  if (argc > 3) arguments.names = std::max(1, std::atoi(argv[3]));
  if (argc > 4) arguments.threads = std::atoi(argv[4]);
  if (argc > 6) {
    arguments.n = std::atoi(argv[5]);
    arguments.k = std::atoi(argv[6]);
  }
  return tetrad::Main(arguments);
}
