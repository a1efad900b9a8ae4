// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/allocation_scenarios.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "engine/pool.h"
#include "engine/simulated_upstream.h"
#include "kernels/random.h"

namespace tetrad {
namespace {

struct Shape {
  int64_t groups, k, n;
};
constexpr Shape kShapes[] = {{8, 7168, 4096}, {8, 2048, 7168},  {2, 4096, 3072},
                             {2, 1536, 4096}, {64, 4096, 1536}, {128, 2048, 768}};

// Codes at half a byte and one scale byte for 16 of them.
int64_t Nvfp4Bytes(int64_t elements) { return elements * 9 / 16; }

int64_t WeightBytes(const Shape& shape) { return Nvfp4Bytes(shape.groups * shape.n * shape.k); }

// A pool without a limit that writes the log, and what is held of it.
class Scenario {
 public:
  Scenario(uint64_t seed, AllocationLog& log, int64_t& now_us)
      : random_(seed), now_us_(now_us), pool_(upstream_.upstream(), {.log = &log}) {}
  ~Scenario() {
    while (!owners_.empty()) End(owners_.size() - 1);
    for (const AllocationId id : weights_) pool_.FreeWhole(id);
  }

  void Serve(int64_t events) {
    for (const Shape& shape : kShapes) Load(WeightBytes(shape));
    std::vector<uint64_t> plans;  // least recently used first
    std::vector<uint64_t> leases;
    while (Events() < events) {
      Pass(4000);
      if (random_.OneIn(3)) {
        if (plans.size() >= 40) EndOldest(plans);
        plans.push_back(Begin(StagingSet()));
        // Some of the older ones are used again.
        std::rotate(plans.begin(), plans.begin() + random_.Below(3) % plans.size(), plans.end());
      } else if (leases.size() < 8 || (leases.size() < 48 && random_.OneIn(2))) {
        leases.push_back(Begin(LeaseBlocks()));
      } else {
        std::swap(leases[random_.Below(static_cast<uint32_t>(leases.size()))], leases.front());
        EndOldest(leases);
      }
    }
  }

  void Churn(int64_t events) {
    for (const Shape& shape : kShapes) Load(WeightBytes(shape));
    std::vector<uint64_t> small;
    std::vector<uint64_t> large;
    while (Events() < events) {
      Pass(1000);
      const int64_t phase = 1 + Events() * 6 / events;
      if (random_.OneIn(2)) {
        small.push_back(Begin({random_.Between(64, 6000)}));
        if (small.size() > 300) {
          std::swap(small[random_.Below(static_cast<uint32_t>(small.size()))], small.front());
          EndOldest(small);
        }
      }
      large.push_back(Begin({phase * random_.Between(40'000, 1'200'000)}));
      if (large.size() > 24) {
        std::swap(large[random_.Below(12)], large.front());
        EndOldest(large);
      }
      if (random_.OneIn(60)) Replace(random_.Below(static_cast<uint32_t>(weights_.size())));
    }
  }

 private:
  struct Owner {
    uint64_t number;
    std::vector<BlockRef> blocks;
  };

  int64_t Events() const { return pool_.stats().allocations + pool_.stats().frees; }
  void Pass(int32_t most_us) { now_us_ += random_.Between(20, most_us); }

  // 1 to 4096, each power of two as likely as another.
  int64_t Tokens() {
    const int32_t power = random_.Between(0, 11);
    return random_.Between(1 << power, 2 << power);
  }
  // A, its scales, C, alpha, and at times a scale per row.
  std::vector<int64_t> StagingSet() {
    const Shape& shape = kShapes[random_.Below(std::size(kShapes))];
    const int64_t m = Tokens();
    const int64_t rows = (m + 127) / 128 * 128;
    std::vector<int64_t> bytes = {m * shape.k / 2, rows * shape.k / 16, m * shape.n * 2,
                                  shape.groups * 4};
    if (random_.OneIn(3)) bytes.push_back(m * 4);
    return bytes;
  }
  // Activations and results that a client keeps, of one model.
  std::vector<int64_t> LeaseBlocks() {
    const Shape& shape = kShapes[random_.Below(std::size(kShapes))];
    std::vector<int64_t> bytes;
    for (int32_t i = random_.Between(1, 4); i > 0; --i) {
      const int64_t m = Tokens();
      bytes.push_back(Nvfp4Bytes(m * shape.k));
      bytes.push_back(m * shape.n * 2);
    }
    return bytes;
  }

  uint64_t Begin(const std::vector<int64_t>& sizes) {
    Owner owner{++last_owner_, {}};
    for (const int64_t bytes : sizes) {
      owner.blocks.push_back(pool_.Allocate(bytes).value());
      now_us_ += random_.Between(1, 20);
    }
    owners_.push_back(std::move(owner));
    return last_owner_;
  }
  void EndOldest(std::vector<uint64_t>& numbers) {
    const auto owner = std::ranges::find(owners_, numbers.front(), &Owner::number);
    End(static_cast<size_t>(owner - owners_.begin()));
    numbers.erase(numbers.begin());
  }
  void End(size_t index) {
    for (const BlockRef& block : owners_[index].blocks) {
      pool_.Free(block);
      now_us_ += random_.Between(1, 5);
    }
    owners_.erase(owners_.begin() + static_cast<ptrdiff_t>(index));
  }
  void Load(int64_t bytes) {
    Pass(100'000);
    weights_.push_back(pool_.AllocateWhole(bytes).value().id);
  }
  void Replace(size_t index) {
    Load(WeightBytes(kShapes[index]));
    std::swap(weights_[index], weights_.back());
    pool_.FreeWhole(weights_.back());
    weights_.pop_back();
  }

  Random random_;
  int64_t& now_us_;
  SimulatedUpstream upstream_{{}};
  Pool pool_;
  std::vector<Owner> owners_;
  std::vector<AllocationId> weights_;
  uint64_t last_owner_ = 0;
};

}  // namespace

absl::Status GenerateScenario(std::string_view name, uint64_t seed, int64_t events,
                              AllocationLog& log, int64_t& now_us) {
  if (name != "serving" && name != "churn") {
    return absl::InvalidArgumentError(
        absl::StrCat("scenario=", std::string(name), " must be serving or churn"));
  }
  {
    Scenario scenario(seed, log, now_us);
    name == "serving" ? scenario.Serve(events) : scenario.Churn(events);
  }
  return log.Close();
}

}  // namespace tetrad
