// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/process_metrics.h"

#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

namespace tetrad {
namespace {

using prometheus::MetricType;

// Field `index` (from 1, as proc(5) counts) of /proc/self/stat.
std::optional<double> StatField(int index) {
  std::ifstream file("/proc/self/stat");
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  // The second field is the program's name in brackets and may hold anything.
  std::istringstream rest(line.substr(line.rfind(')') + 1));
  std::string field;
  for (int i = 3; i <= index; ++i) rest >> field;
  if (!rest) return std::nullopt;
  return std::stod(field);
}

std::optional<double> StartTime() {
  std::ifstream file("/proc/stat");
  std::string word;
  double boot = 0;
  while (file >> word) {
    if (word != "btime") continue;
    file >> boot;
    const std::optional<double> ticks = StatField(22);
    if (!file || !ticks.has_value()) return std::nullopt;
    return boot + *ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
  }
  return std::nullopt;
}

std::optional<double> ProcessorSeconds() {
  rusage use{};
  if (::getrusage(RUSAGE_SELF, &use) != 0) return std::nullopt;
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

std::optional<double> ResidentBytes() {
  const std::optional<double> pages = StatField(24);
  if (!pages.has_value()) return std::nullopt;
  return *pages * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

std::optional<double> OpenFiles() {
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return std::nullopt;
  int entries = 0;
  while (::readdir(folder) != nullptr) ++entries;
  ::closedir(folder);
  return entries - 3;  // ".", ".." and the folder itself
}

}  // namespace

void AppendProcessMetrics(std::vector<prometheus::MetricFamily>& families) {
  const auto append = [&families](const char* name, const char* help, MetricType type,
                                  std::optional<double> value) {
    if (!value.has_value()) return;
    prometheus::ClientMetric metric;
    (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = *value;
    families.push_back({name, help, type, {metric}});
  };
  append("process_start_time_seconds", "Start of the process, seconds since the epoch.",
         MetricType::Gauge, StartTime());
  append("process_cpu_seconds_total", "Processor time used, user and system.", MetricType::Counter,
         ProcessorSeconds());
  append("process_resident_memory_bytes", "Resident memory.", MetricType::Gauge, ResidentBytes());
  append("process_open_fds", "Open file descriptors.", MetricType::Gauge, OpenFiles());
}

}  // namespace tetrad
