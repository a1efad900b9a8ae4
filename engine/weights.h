// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Weights: B operands under a name and version, written once, then sealed.
//
// Begin() reserves a version and device memory; Write() and Fill() bring its
// bytes in any order, several threads at a time, refuse illegal scales and clear
// scale padding; Seal() checks that every byte arrived exactly once, packs them if the device's
// kernels read them packed, makes the memory read-only and then makes the version the one its name
// resolves to, atomically. The version it replaces stays alive for the launches that hold it and is
// forgotten. A replacement must have the shapes and scale layout of what it replaces.
//
// On a device that packs, memory is reserved for the larger of the two forms, and packed in place.
// That takes scratch out of the pool while it runs (PackingBatches says how much). Without it
// Seal() fails and can be tried again. If the device fails while it packs, the bytes are lost:
// Seal() says so, and the version is forgotten.
//
// Thread-safe. A WeightsVersion handed out stays valid while it is held; its
// memory returns to the device some time after its last holder let go.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/device.h"
#include "engine/pool.h"
#include "engine/reclaimer.h"
#include "engine/weights_spec.h"
#include "engine/written_ranges.h"

namespace tetrad {

enum class WeightsOperand : uint8_t { kCodes = 0, kScales = 1 };

struct WeightsInfo {
  WeightsSpec spec;
  int64_t version = 0;
  bool sealed = false;
  int64_t bytes = 0;  // device memory held
};

// One version in device memory, as the device's kernels read it once it is sealed. Codes and
// scales are the groups concatenated; packed, the codes hold both.
class WeightsVersion : public Reclaimable {
 public:
  // `layout` is that of the spec, or kPacked.
  WeightsVersion(Pool& pool, WeightsSpec spec, int64_t version, ScaleLayout layout,
                 Allocation memory);
  ~WeightsVersion();
  WeightsVersion(const WeightsVersion&) = delete;

  const WeightsSpec& spec() const { return spec_; }
  int64_t version() const { return version_; }
  std::string reference() const;  // name@version
  // That of spec(), or kPacked.
  ScaleLayout layout() const { return layout_; }
  BlockRef codes() const;
  BlockRef scales() const;
  int64_t bytes() const { return memory_.bytes; }
  // No name resolves to it any more: dropped or replaced. Caches let go of it.
  bool retired() const { return retired_.load(std::memory_order_acquire); }
  float alpha(size_t group) const { return spec_.alpha.empty() ? 1.0f : spec_.alpha[group]; }

 private:
  friend class WeightsRegistry;
  Pool& pool_;
  const WeightsSpec spec_;
  const int64_t version_;
  const ScaleLayout layout_;
  const Allocation memory_;
  const int64_t code_bytes_;
  const int64_t scale_bytes_;
  const int64_t scales_offset_;
  mutable std::atomic<bool> retired_{false};
};

class WeightsRegistry {
 public:
  struct Limits {
    int64_t max_versions = 4096;  // sealed and unsealed together
    int64_t max_groups = 1 << 17;
    int64_t max_pieces = 1 << 16;  // separate ranges of one operand, while it is written
  };
  // `on_retired` is called, without locks held, after a version was replaced or
  // dropped: caches can let go of it.
  // What `reclaimer` owns of it must be gone before the pool is.
  WeightsRegistry(Device& device, Pool& pool, Reclaimer& reclaimer, Limits limits,
                  std::function<void()> on_retired);
  ~WeightsRegistry();

  // Reserves the next version of spec.name and zeroed memory for it.
  absl::StatusOr<int64_t> Begin(WeightsSpec spec);
  // Bytes of an operand, from its start; refused where bytes were already
  // written. INVALID_ARGUMENT names group, row and block of an illegal scale;
  // RESOURCE_EXHAUSTED: so far out of order that too many gaps must be kept.
  absl::Status Write(std::string_view name, int64_t version, WeightsOperand operand, int64_t offset,
                     std::span<const std::byte> data);
  // The same, but bytes written before are left as they are, and are no error: for
  // whoever sends again without knowing what arrived. A caller at a time.
  absl::Status WriteMissing(std::string_view name, int64_t version, WeightsOperand operand,
                            int64_t offset, std::span<const std::byte> data);
  // What of an unsealed version was not written, what is just being written
  // included: the first `most` ranges, ascending.
  absl::StatusOr<std::vector<ByteRange>> Missing(std::string_view name, int64_t version,
                                                 WeightsOperand operand, size_t most) const;
  // The same, but `source` writes the bytes, in order and piece by piece, where
  // the device takes them from. It is called without locks held. If it fails, or
  // anything else does, the bytes count as not written; its error is returned.
  absl::Status Fill(std::string_view name, int64_t version, WeightsOperand operand, int64_t offset,
                    int64_t bytes, FillSource source);
  // Checks, packs, freezes and publishes. FAILED_PRECONDITION names the bytes missing or
  // just being written, or the version whose shapes and scale layout a
  // replacement must have. RESOURCE_EXHAUSTED: no scratch to pack with. DATA_LOSS: the
  // device failed while it packed, and the version is forgotten.
  absl::StatusOr<WeightsInfo> Seal(std::string_view name, int64_t version);
  // Forgets an unsealed version, e.g. of an upload that broke off. What writes it
  // at the moment is not waited for: it holds the memory until it ends, in error.
  void Abandon(std::string_view name, int64_t version);

  // `name` or `name@version`. NOT_FOUND says what exists.
  absl::StatusOr<std::shared_ptr<const WeightsVersion>> Resolve(std::string_view reference) const;
  // Forgets `name@version`, or all of `name` (sealed and not). Returns how many.
  absl::StatusOr<int> Drop(std::string_view reference);
  std::vector<WeightsInfo> List() const;
  // One version, sealed or not; NOT_FOUND if no name leads to it (any more).
  absl::StatusOr<WeightsInfo> Find(std::string_view name, int64_t version) const;
  struct Use {
    int64_t versions = 0;
    int64_t bytes = 0;
  };
  // Versions a name leads to, sealed or not.
  Use use() const;

 private:
  struct Pending;
  struct Name;
  // The same without CatchNoMemory().
  absl::StatusOr<int64_t> DoBegin(WeightsSpec spec);
  absl::Status DoFill(std::string_view name, int64_t version, WeightsOperand operand,
                      int64_t offset, int64_t bytes, FillSource source);
  // The checked copy itself, of a range that is reserved.
  absl::Status Copy(const Pending& pending, WeightsOperand operand, int64_t offset, int64_t bytes,
                    FillSource source);
  absl::StatusOr<WeightsInfo> DoSeal(std::string_view name, int64_t version);
  absl::StatusOr<std::shared_ptr<Pending>> FindPending(std::string_view name,
                                                       int64_t version) const;
  // All that follow need pending.mutex.
  // Brings what is written into the form that the device's kernels read, unless it is.
  absl::Status Pack(Pending& pending);
  // Closes the version; no name leads to it any more.
  void Forget(Pending& pending);
  // Makes the version the sealed one of its name; true if it replaced another.
  absl::StatusOr<bool> Publish(Pending& pending);

  Device& device_;
  Pool& pool_;
  Reclaimer& reclaimer_;
  const Limits limits_;
  const std::function<void()> on_retired_;
  mutable std::mutex mutex_;
  std::map<std::string, Name, std::less<>> names_;  // guarded by mutex_
  int64_t versions_held_ = 0;                       // guarded by mutex_
  // Counts over all names, so that name@version never means two things, even
  // after a name was dropped and used again. Guarded by mutex_.
  int64_t last_version_ = 0;
};

}  // namespace tetrad
