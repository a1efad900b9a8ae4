// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/simulation/seeds.h"

#include <cstdio>
#include <cstring>
#include <new>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "engine/simulation/plan_world.h"
#include "engine/simulation/trace.h"
#include "engine/simulation/world.h"
#include "engine/support/status_macros.h"

namespace tetrad::simulation {
namespace {

// Every so many seeds a plan cache; the profiles share the others.
constexpr uint64_t kKinds = 8;

struct Report {
  uint64_t seeds = 0;
  uint64_t seed = 0;
  bool finished = false;
  char violation[400] = {};
  Coverage coverage;
};

void RunAll(uint64_t first, uint64_t count, Report& report) {
  for (uint64_t i = 0; i < count; ++i) {
    report.seed = first + i;
    const Outcome outcome = RunSeed(report.seed, report.coverage);
    ++report.seeds;
    if (outcome.violation.empty()) continue;
    std::snprintf(report.violation, sizeof(report.violation), "%s", outcome.violation.c_str());
    break;
  }
  report.finished = true;
}

}  // namespace

Outcome RunSeed(uint64_t seed, Coverage& coverage, size_t lines, bool print) {
  Trace trace(lines, print);
  const uint64_t kind = seed % kKinds;
  if (kind == 0) {
    PlanWorld(seed, trace, coverage).Run();
  } else {
    World(seed, static_cast<World::Profile>(kind % 4), trace, coverage).Run();
  }
  return {trace.violation(), trace.hash(), {trace.lines().begin(), trace.lines().end()}};
}

Search RunSeeds(uint64_t first, uint64_t count) {
  void* const shared =
      ::mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  TETRAD_CHECK(shared != MAP_FAILED);
  Report& report = *new (shared) Report;
  std::fflush(nullptr);
  const pid_t child = ::fork();
  TETRAD_CHECK(child >= 0);
  if (child == 0) {
    RunAll(first, count, report);
    ::_exit(0);
  }
  int status = 0;
  TETRAD_CHECK(::waitpid(child, &status, 0) == child);
  Search search{.seeds = report.seeds, .seed = report.seed, .coverage = report.coverage};
  if (!report.finished) {
    search.crashed = search.found = true;
    search.violation = absl::StrCat("the process ended with status ", status);
  } else if (report.violation[0] != 0) {
    search.found = true;
    search.violation = report.violation;
  }
  ::munmap(shared, sizeof(Report));
  return search;
}

}  // namespace tetrad::simulation
