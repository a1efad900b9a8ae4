// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// World: clients, a clock and a device around one stepped engine, all of it a
// pure function of a seed.
//
// Each event does something a client, the device or time can do, and compares
// what the engine says with a model of what it promises: who holds what, what
// is in every block, which answers a request may get. Step() and Housekeep()
// are called when the engine asked for it or said it would be due, so that a
// wake-up that is missing leaves something undone.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "engine/engine.h"
#include "engine/simulation/catalogue.h"
#include "engine/simulation/coverage.h"
#include "engine/simulation/random.h"
#include "engine/simulation/simulated_device.h"
#include "engine/simulation/trace.h"

namespace tetrad::simulation {

class World {
 public:
  enum class Profile : uint8_t { kCalm, kPressure, kFaults, kChurn };
  World(uint64_t seed, Profile profile, Trace& trace, Coverage& coverage);
  ~World();

  // Events, then an orderly end.
  void Run();

 private:
  using Call = SimulatedDevice::Call;
  static constexpr Instant kMillisecond = 1'000'000;
  static constexpr const char* kNames[] = {"a", "b", "c", "d"};  // of weights
  static constexpr int64_t kClients = 3;
  static std::string Client(size_t client) { return absl::StrCat("client", client); }

  struct Lease {
    size_t client = 0;
    std::string name;
    std::vector<LeaseInfo> attachments;  // the last one counts
    Instant expiry = kNever;             // kNever: attached
    bool ended = false;
  };
  struct Block {
    size_t client = 0, lease = 0;
    std::string name;
    std::vector<std::byte> bytes;  // what must be in it
    bool named = true;
  };
  struct Handle {
    size_t client = 0;
    std::optional<size_t> lease;
    std::string name;
    size_t shape = 0;
    std::string weights;
    Instant used = 0;
    bool live = true;
  };
  struct Version {
    int64_t number = 0;
    size_t family = 0, content = 0;
  };
  struct Upload {
    std::string name;
    Version version;
  };
  // Bytes of a block that a request uses.
  struct Use {
    size_t block = 0;
    int64_t begin = 0, end = 0;
    bool written = false;
  };
  struct Request {
    size_t client = 0, shape = 0;
    std::string weights;  // name@version it must be answered with
    Version version;
    absl::StatusCode bad = absl::StatusCode::kOk;  // why its operands are refused
    std::string a, a_scales;
    std::vector<float> alpha, row_scale;
    std::vector<int32_t> m_values;
    Priority priority = Priority::kNormal;
    Instant deadline = kNever;
    bool in_blocks = false, bad_counts = false;
    std::vector<Use> uses;
    Use output;                        // in blocks
    std::vector<std::byte> expected;   // inline: on the wire; in blocks: the output's range
    uint64_t tag = 0;                  // to recognise it on the device; 0: none
    bool keep = false, again = false;  // what `done` does
    // What became of it.
    ExecutionId id = ExecutionId::kNone;
    int64_t order = 0;       // of admission; 0: not admitted
    bool admitting = false;  // Execute() has not returned yet
    bool handed_over = false, refused = false, completed = false, failed = false;
    bool cancelled = false, maybe_cancelled = false;
    int answers = 0;
    absl::Status answer;
    bool pending() const { return order > 0 && answers == 0; }
    bool launchable() const { return pending() || admitting; }
  };
  struct Held {
    size_t request = 0;
    Executed executed;
  };
  struct Limits {
    int64_t memory_bytes, staging_bytes, chunk_bytes, block_bytes;
    int64_t plan_capacity, queue_depth, fault_one_in, meanwhile_one_in;
  };
  // What a request must be answered with at once; OK: nothing forbids it.
  struct Verdict {
    absl::StatusCode code = absl::StatusCode::kOk;
    bool early = false;  // before its handle was looked up
  };

  // The engine's and the device's view of the world.
  absl::Status BeforeCall(Call call);
  void Meanwhile(Call call);
  void OnHandOver(const SimulatedDevice::HandOver& hand_over);

  void Event();
  void CheckMisuse();
  void Settle();  // after each event: sums that always hold
  void Step();
  void Housekeep();
  void Quiet();  // if nothing is under way: to the byte
  void End();
  void Drain();
  Instant HousekeepDue() const;
  Instant StepDue() const;

  void Attach();
  void Resume();
  void Detach();
  void EndLease();
  void Allocate();
  void WriteBlock();
  void ReadBlock();
  void FreeBlock();
  void FreeBlock(size_t block);
  void ListBlocks();
  void UseStaleName();
  void EndLeaseInModel(size_t lease);
  void CheckBlock(size_t block);
  bool Used(size_t block, int64_t begin, int64_t end, bool writing) const;
  std::optional<size_t> SomeLease(bool live);
  std::optional<size_t> SomeBlock();

  void Prepare();
  void Release();
  void ExecuteSome();
  void Execute(bool in_blocks);
  void MakeMValues(Request& request, bool good);
  void MakeOperands(Request& request);
  void SpoilOperands(Request& request);
  std::optional<Use> FindPlace(const Request& request, int64_t bytes, bool writing);
  bool PlaceInBlocks(Request& request, BlockOperands& operands);
  void SpoilRange(Request& request, BlockOperands& operands);
  std::vector<std::byte> Alphas(const Request& request) const;
  void ExpectInline(Request& request);
  void ExpectInBlocks(Request& request, const BlockOperands& operands);
  Verdict Judge(Request& request, const std::optional<size_t>& handle,
                const std::string& reference) const;
  void Admit(size_t index, const ExecuteRequest& request, Verdict verdict,
             std::optional<size_t> handle);
  void OnDone(size_t index, absl::StatusOr<Executed> executed);
  void CheckAnswer(size_t index);
  void CheckOutput(const Request& request, const Executed& executed);
  void CheckOutputBlock(Request& request);
  void Cancel();
  void ReleaseHeld();

  void Register();
  void BeginUpload();
  void FinishUpload();
  void FinishUpload(size_t upload);
  void Drop();
  void Drop(const std::string& reference);
  absl::StatusCode ResolveInModel(const std::string& reference, Version* version) const;
  bool WeightsInUse(const std::string& reference) const;

  void CompleteLaunch();
  void LoseLaunch();
  void LoseDevice();
  void Advance();
  void Close();

  static Limits LimitsOf(Profile profile);
  Instant LaunchTimeout() const {
    return absl::ToInt64Nanoseconds(engine_->options().launch_timeout);
  }
  bool lossy() const { return lost_ || device_->lost() || launch_lost_; }
  int64_t Pending() const;
  // Records a broken promise unless `kept`.
  void Promise(bool kept, std::string_view promise, int64_t detail = 0);

  Random random_;
  Trace& trace_;
  Coverage& coverage_;
  const Profile profile_;
  const Limits limits_;
  const bool spurious_;  // steps that nobody asked for, too
  const Catalogue& catalogue_;
  Instant now_ = 1'000'000;
  Instant step_due_ = 0, housekeep_due_ = 0;
  bool step_woken_ = false, housekeep_woken_ = false;
  bool stepping_ = false, closed_ = false, lost_ = false, launch_lost_ = false, faults_ = true;
  bool draining_ = false, disturbed_ = false;  // ended some in the midst of a step
  int depth_ = 0;                              // of what happens meanwhile
  int64_t meanwhile_ = 0;                      // so many times
  int64_t strikes_ = 0;                        // faults injected
  int64_t order_ = 0, tags_ = 0;
  std::vector<std::string> misuse_;  // of the device, during this event
  std::vector<Lease> leases_;
  std::vector<Block> blocks_;
  std::vector<Handle> handles_;
  std::map<std::string, Version> weights_;
  std::vector<Upload> uploads_;
  std::vector<std::unique_ptr<Request>> requests_;
  std::map<uint64_t, size_t> tickets_;
  std::map<uint64_t, Instant> launched_at_;  // by ticket
  std::vector<Held> held_;
  int64_t done_launches_ = 0;
  SimulatedDevice* device_ = nullptr;
  std::unique_ptr<Engine> engine_;
};

}  // namespace tetrad::simulation
