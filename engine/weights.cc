// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/weights.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "engine/packing_batches.h"
#include "engine/scale_check.h"
#include "engine/support/error_detail.h"
#include "engine/support/no_memory.h"
#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

constexpr int64_t kScalesAlignment = 256;  // of codes and scales within the allocation
int64_t TotalCodeBytes(const WeightsSpec& spec) {
  int64_t bytes = 0;
  for (const GroupDims& dims : spec.groups) bytes += CodeBytes(dims.n, dims.k);
  return bytes;
}

int64_t TotalScaleBytes(const WeightsSpec& spec) {
  int64_t bytes = 0;
  for (const GroupDims& dims : spec.groups) {
    bytes += ScalePlaneBytes(spec.scale_layout, dims.n, dims.k);
  }
  return bytes;
}

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

const char* FieldOf(WeightsOperand operand) {
  return operand == WeightsOperand::kScales ? "scales" : "codes";
}

// Where scales begin in an allocation that starts with the codes.
int64_t ScalesOffset(const WeightsSpec& spec) {
  return RoundUp(TotalCodeBytes(spec), kScalesAlignment);
}

absl::Status CheckInside(WeightsOperand operand, const BlockRef& block, int64_t offset,
                         int64_t bytes) {
  if (offset >= 0 && bytes >= 0 && offset <= block.bytes && bytes <= block.bytes - offset) {
    return absl::OkStatus();
  }
  return FieldError({"chunk.offset", absl::StrCat(offset),
                     absl::StrCat("at most ", block.bytes, " less the bytes of the chunk")},
                    Reason::kFieldOutOfRange,
                    absl::StrCat(FieldOf(operand), ": ", bytes, " bytes at offset ", offset,
                                 " exceed the operand's ", block.bytes, " bytes"));
}

// Plans made for the name must fit what replaces it.
absl::Status CheckReplaces(const WeightsVersion* sealed, const WeightsVersion& by) {
  if (sealed == nullptr || (sealed->spec().groups == by.spec().groups &&
                            sealed->spec().scale_layout == by.spec().scale_layout)) {
    return absl::OkStatus();
  }
  return FieldError(
      {"name", by.spec().name, absl::StrCat("the shapes of version ", sealed->version())},
      Reason::kShapesDiffer,
      absl::StrCat("weights ", by.spec().name,
                   ": a replacement needs the shapes and scale layout of version ",
                   sealed->version(), "; drop it first to change them"));
}

}  // namespace

WeightsVersion::WeightsVersion(Pool& pool, WeightsSpec spec, int64_t version, ScaleLayout layout,
                               Allocation memory)
    : pool_(pool),
      spec_(std::move(spec)),
      version_(version),
      layout_(layout),
      memory_(memory),
      code_bytes_(layout == ScaleLayout::kPacked ? PackedWeightBytes(spec_.groups)
                                                 : TotalCodeBytes(spec_)),
      scale_bytes_(layout == ScaleLayout::kPacked ? 0 : TotalScaleBytes(spec_)),
      scales_offset_(layout == ScaleLayout::kPacked ? 0 : ScalesOffset(spec_)) {}

WeightsVersion::~WeightsVersion() {
  // Every binding over this memory held the version, so nothing uses it now.
  pool_.FreeWhole(memory_.id);
}

std::string WeightsVersion::reference() const { return absl::StrCat(spec_.name, "@", version_); }
BlockRef WeightsVersion::codes() const { return {memory_.id, 0, code_bytes_}; }
BlockRef WeightsVersion::scales() const { return {memory_.id, scales_offset_, scale_bytes_}; }

// A version being written.
struct WeightsRegistry::Pending {
  explicit Pending(std::shared_ptr<WeightsVersion> v)
      : version(std::move(v)),
        codes{version->codes().allocation, 0, TotalCodeBytes(version->spec())},
        scales{codes.allocation, ScalesOffset(version->spec()), TotalScaleBytes(version->spec())},
        scale_planes(ScalePlaneOffsets(version->spec().groups, version->spec().scale_layout)) {}
  const std::shared_ptr<WeightsVersion> version;
  const BlockRef codes, scales;  // where they are written
  const std::vector<int64_t> scale_planes;
  std::mutex mutex;
  WrittenRanges written[2];  // per operand; guarded by mutex
  bool packed = false;       // what was written; guarded by mutex
  bool closed = false;       // sealed, abandoned or lost; guarded by mutex

  BlockRef Place(WeightsOperand operand) const {
    return operand == WeightsOperand::kScales ? scales : codes;
  }
  // Needs mutex.
  absl::Status CheckOpen() const {
    if (!closed) return absl::OkStatus();
    return ReasonError(Reason::kWeightsSealed, "weights: this version is no longer being written");
  }
};

struct WeightsRegistry::Name {
  std::shared_ptr<const WeightsVersion> sealed;
  std::map<int64_t, std::shared_ptr<Pending>> pending;
  bool empty() const { return sealed == nullptr && pending.empty(); }
};

WeightsRegistry::WeightsRegistry(Device& device, Pool& pool, Reclaimer& reclaimer, Limits limits,
                                 std::function<void()> on_retired)
    : device_(device),
      pool_(pool),
      reclaimer_(reclaimer),
      limits_(limits),
      on_retired_(std::move(on_retired)) {}
WeightsRegistry::~WeightsRegistry() = default;

absl::StatusOr<int64_t> WeightsRegistry::Begin(WeightsSpec spec) {
  return CatchNoMemory([&] { return DoBegin(std::move(spec)); });
}

absl::StatusOr<int64_t> WeightsRegistry::DoBegin(WeightsSpec spec) {
  TETRAD_RETURN_IF_ERROR(ValidateWeightsSpec(spec));
  const int64_t groups = static_cast<int64_t>(spec.groups.size());
  if (groups > limits_.max_groups) {
    return FieldError(
        {"groups", absl::StrCat(groups), absl::StrCat("at most ", limits_.max_groups)},
        Reason::kFieldOutOfRange,
        absl::StrCat("groups=", groups, " exceeds the limit ", limits_.max_groups));
  }
  {
    std::lock_guard lock(mutex_);
    if (versions_held_ >= limits_.max_versions) {
      return ReasonError(Reason::kTableFull,
                         absl::StrCat("weights: ", versions_held_, " versions held, the limit"));
    }
    ++versions_held_;  // reserved before the slow allocation
  }
  absl::Cleanup give_back = [this] {
    std::lock_guard lock(mutex_);
    --versions_held_;
  };
  ScaleLayout layout = spec.scale_layout;
  int64_t bytes = ScalesOffset(spec) + TotalScaleBytes(spec);
  if (device_.limits().packs_weights) {
    layout = ScaleLayout::kPacked;
    bytes = std::max(bytes, PackedWeightBytes(spec.groups));
  }
  const std::string name = spec.name;
  int64_t version;
  {
    std::lock_guard lock(mutex_);
    version = ++last_version_;
  }
  TETRAD_ASSIGN_OR_RETURN(const Allocation memory, pool_.AllocateWhole(bytes));
  absl::Cleanup free = [&] { pool_.FreeWhole(memory.id); };
  auto made = std::make_unique<WeightsVersion>(pool_, std::move(spec), version, layout, memory);
  std::move(free).Cancel();
  const std::shared_ptr<WeightsVersion> weights = reclaimer_.Own(std::move(made));
  // Made here, so that under the lock nothing can fail half done.
  std::map<int64_t, std::shared_ptr<Pending>> pending;
  pending.emplace(version, std::make_shared<Pending>(weights));
  std::map<std::string, Name, std::less<>> names;
  names.try_emplace(name);
  std::lock_guard lock(mutex_);
  names_.merge(names);
  names_.find(name)->second.pending.merge(pending);
  std::move(give_back).Cancel();
  return version;
}

absl::StatusOr<std::shared_ptr<WeightsRegistry::Pending>> WeightsRegistry::FindPending(
    std::string_view name, int64_t version) const {
  std::lock_guard lock(mutex_);
  if (const auto at = names_.find(name); at != names_.end()) {
    const auto pending = at->second.pending.find(version);
    if (pending != at->second.pending.end()) return pending->second;
    if (at->second.sealed != nullptr && at->second.sealed->version() == version) {
      return ReasonError(Reason::kWeightsSealed,
                         absl::StrCat("weights ", View(name), "@", version, " is sealed"));
    }
  }
  return FieldError({"version", absl::StrCat(version)}, Reason::kWeightsNotFound,
                    absl::StrCat("weights: no unsealed version ", version, " of that name"));
}

absl::Status WeightsRegistry::Write(std::string_view name, int64_t version, WeightsOperand operand,
                                    int64_t offset, std::span<const std::byte> data) {
  const std::byte* from = data.data();
  return Fill(name, version, operand, offset, static_cast<int64_t>(data.size()),
              [&from](std::span<std::byte> piece) {
                std::copy_n(from, piece.size(), piece.data());
                from += piece.size();
                return absl::OkStatus();
              });
}

absl::Status WeightsRegistry::WriteMissing(std::string_view name, int64_t version,
                                           WeightsOperand operand, int64_t offset,
                                           std::span<const std::byte> data) {
  return CatchNoMemory([&]() -> absl::Status {
    TETRAD_ASSIGN_OR_RETURN(const std::shared_ptr<Pending> pending, FindPending(name, version));
    const auto bytes = static_cast<int64_t>(data.size());
    TETRAD_RETURN_IF_ERROR(CheckInside(operand, pending->Place(operand), offset, bytes));
    std::vector<ByteRange> gaps;
    {
      std::lock_guard lock(pending->mutex);
      gaps = pending->written[static_cast<size_t>(operand)].Gaps(offset, offset + bytes, SIZE_MAX);
    }
    for (const ByteRange& gap : gaps) {
      TETRAD_RETURN_IF_ERROR(Write(
          name, version, operand, gap.offset,
          data.subspan(static_cast<size_t>(gap.offset - offset), static_cast<size_t>(gap.bytes))));
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<ByteRange>> WeightsRegistry::Missing(std::string_view name,
                                                                int64_t version,
                                                                WeightsOperand operand,
                                                                size_t most) const {
  return CatchNoMemory([&]() -> absl::StatusOr<std::vector<ByteRange>> {
    TETRAD_ASSIGN_OR_RETURN(const std::shared_ptr<Pending> pending, FindPending(name, version));
    std::lock_guard lock(pending->mutex);
    TETRAD_RETURN_IF_ERROR(pending->CheckOpen());
    return pending->written[static_cast<size_t>(operand)].Gaps(0, pending->Place(operand).bytes,
                                                               most);
  });
}

absl::Status WeightsRegistry::Fill(std::string_view name, int64_t version, WeightsOperand operand,
                                   int64_t offset, int64_t bytes, FillSource source) {
  return CatchNoMemory([&] { return DoFill(name, version, operand, offset, bytes, source); });
}

absl::Status WeightsRegistry::DoFill(std::string_view name, int64_t version, WeightsOperand operand,
                                     int64_t offset, int64_t bytes, FillSource source) {
  TETRAD_ASSIGN_OR_RETURN(const std::shared_ptr<Pending> pending, FindPending(name, version));
  const BlockRef block = pending->Place(operand);
  const char* const field = FieldOf(operand);
  TETRAD_RETURN_IF_ERROR(CheckInside(operand, block, offset, bytes));
  if (bytes == 0) return absl::OkStatus();
  WrittenRanges& written = pending->written[static_cast<size_t>(operand)];
  {
    std::lock_guard lock(pending->mutex);
    TETRAD_RETURN_IF_ERROR(pending->CheckOpen());
    TETRAD_RETURN_IF_ERROR(written.Reserve(field, offset, bytes, limits_.max_pieces));
  }
  absl::Cleanup release = [&] {
    std::lock_guard lock(pending->mutex);
    written.Release(offset);
  };
  TETRAD_RETURN_IF_ERROR(Copy(*pending, operand, offset, bytes, source));
  std::move(release).Cancel();
  std::lock_guard lock(pending->mutex);
  written.Commit(offset);
  return pending->CheckOpen();
}

absl::Status WeightsRegistry::Copy(const Pending& pending, WeightsOperand operand, int64_t offset,
                                   int64_t bytes, FillSource source) {
  const WeightsSpec& spec = pending.version->spec();
  const BlockRef block = pending.Place(operand);
  int64_t at = offset;
  // Scales are checked where the source wrote them, while a cache still has them.
  // Nothing may be thrown through the device.
  return device_.Fill(
      block.allocation, block.offset + offset, bytes, [&](std::span<std::byte> piece) {
        return CatchNoMemory([&]() -> absl::Status {
          TETRAD_RETURN_IF_ERROR(source(piece));
          const int64_t begin = std::exchange(at, at + static_cast<int64_t>(piece.size()));
          if (operand == WeightsOperand::kCodes) return absl::OkStatus();
          return CheckScales(spec.groups, spec.scale_layout, pending.scale_planes, begin, piece);
        });
      });
}

absl::StatusOr<WeightsInfo> WeightsRegistry::Seal(std::string_view name, int64_t version) {
  return CatchNoMemory([&] { return DoSeal(name, version); });
}

absl::StatusOr<WeightsInfo> WeightsRegistry::DoSeal(std::string_view name, int64_t version) {
  TETRAD_ASSIGN_OR_RETURN(const std::shared_ptr<Pending> pending, FindPending(name, version));
  const std::shared_ptr<WeightsVersion>& weights = pending->version;
  std::unique_lock lock(pending->mutex);
  TETRAD_RETURN_IF_ERROR(pending->CheckOpen());
  for (const WeightsOperand operand : {WeightsOperand::kCodes, WeightsOperand::kScales}) {
    const WrittenRanges& written = pending->written[static_cast<size_t>(operand)];
    const int64_t want = pending->Place(operand).bytes;
    if (written.Covers(want)) continue;
    if (written.copying()) {
      return ReasonError(Reason::kBusy,
                         absl::StrCat(FieldOf(operand), ": bytes from ", written.first_copy(),
                                      " are being written at the moment"));
    }
    return ReasonError(Reason::kWeightsIncomplete,
                       absl::StrCat(FieldOf(operand), ": ", want - written.written_bytes(), " of ",
                                    want, " bytes missing, the first at ", written.first_gap()));
  }
  // Takes long for gigabytes, so not under the registry's lock. Nothing is lost
  // if publishing then fails: every byte is there, packed once, and to seal again is no error.
  {
    // First, because packing is long; what is published meanwhile is checked again then.
    std::lock_guard names(mutex_);
    const auto at = names_.find(name);
    if (at != names_.end()) {
      TETRAD_RETURN_IF_ERROR(CheckReplaces(at->second.sealed.get(), *weights));
    }
  }
  TETRAD_RETURN_IF_ERROR(Pack(*pending));
  TETRAD_RETURN_IF_ERROR(device_.Seal(weights->codes().allocation));
  WeightsInfo info{weights->spec(), version, true, weights->bytes()};  // no memory after publishing
  TETRAD_ASSIGN_OR_RETURN(const bool replaced, Publish(*pending));
  lock.unlock();
  if (replaced) on_retired_();
  return info;
}

absl::Status WeightsRegistry::Pack(Pending& pending) {
  const WeightsVersion& weights = *pending.version;
  if (weights.layout() != ScaleLayout::kPacked || pending.packed) return absl::OkStatus();
  const PackingBatches batches(weights.spec().groups, weights.spec().scale_layout);
  const auto scratch = pool_.Allocate(batches.scratch_bytes());
  if (!scratch.ok()) {
    return WithPrefix(absl::StrCat("weights ", weights.reference(), ": scratch to pack them: "),
                      scratch.status());
  }
  const absl::Cleanup give_back = [&] { pool_.Free(*scratch); };
  absl::Cleanup lose = [&] { Forget(pending); };
  const absl::Status packed =
      device_.PackWeights({.groups = batches.groups(),
                           .scale_layout = batches.scale_layout(),
                           .memory = {weights.codes().allocation, 0, weights.bytes()},
                           .scales = pending.scales.offset,
                           .scratch = *scratch});
  if (!packed.ok()) {
    return ReasonError(Reason::kWeightsLost,
                       absl::StrCat("weights ", weights.reference(),
                                    ": lost while they were packed, write them again as another "
                                    "version: ",
                                    packed.message()));
  }
  std::move(lose).Cancel();
  pending.packed = true;
  return absl::OkStatus();
}

absl::StatusOr<bool> WeightsRegistry::Publish(Pending& pending) {
  const std::shared_ptr<WeightsVersion>& weights = pending.version;
  std::shared_ptr<const WeightsVersion> replaced;  // freed after the lock is gone
  std::lock_guard lock(mutex_);
  const auto at = names_.find(weights->spec().name);
  if (at == names_.end() || !at->second.pending.contains(weights->version())) {
    return ReasonError(Reason::kWeightsNotFound,
                       absl::StrCat("weights ", weights->reference(), " was dropped"));
  }
  Name& entry = at->second;
  TETRAD_RETURN_IF_ERROR(CheckReplaces(entry.sealed.get(), *weights));
  pending.closed = true;
  entry.pending.erase(weights->version());
  replaced = std::exchange(entry.sealed, weights);
  if (replaced == nullptr) return false;
  replaced->retired_.store(true, std::memory_order_release);
  --versions_held_;
  return true;
}

void WeightsRegistry::Abandon(std::string_view name, int64_t version) {
  const auto pending = FindPending(name, version);
  if (!pending.ok()) return;
  std::lock_guard lock((*pending)->mutex);
  Forget(**pending);
}

void WeightsRegistry::Forget(Pending& pending) {
  pending.closed = true;
  std::lock_guard lock(mutex_);
  const auto at = names_.find(pending.version->spec().name);
  if (at == names_.end() || at->second.pending.erase(pending.version->version()) == 0) return;
  --versions_held_;
  if (at->second.empty()) names_.erase(at);
}

absl::StatusOr<std::shared_ptr<const WeightsVersion>> WeightsRegistry::Resolve(
    std::string_view text) const {
  TETRAD_ASSIGN_OR_RETURN(const WeightsReference reference, ParseWeightsReference(text));
  std::lock_guard lock(mutex_);
  const auto at = names_.find(reference.name);
  if (at == names_.end()) {
    return FieldError({"weights", std::string(text)}, Reason::kWeightsNotFound,
                      absl::StrCat("weights: nothing is registered as ", View(reference.name)));
  }
  const Name& entry = at->second;
  if (entry.sealed == nullptr) {
    return FieldError({"weights", std::string(text)}, Reason::kWeightsNotSealed,
                      absl::StrCat("weights ", View(reference.name), ": no version is sealed yet"));
  }
  if (reference.version.has_value() && *reference.version != entry.sealed->version()) {
    if (entry.pending.contains(*reference.version)) {
      return FieldError({"weights", std::string(text)}, Reason::kWeightsNotSealed,
                        absl::StrCat("weights ", View(text), " is not sealed yet"));
    }
    return FieldError(
        {"weights", std::string(text)}, Reason::kWeightsNotFound,
        absl::StrCat("weights ", View(text), ": the version is ", entry.sealed->version()));
  }
  return entry.sealed;
}

absl::StatusOr<int> WeightsRegistry::Drop(std::string_view text) {
  TETRAD_ASSIGN_OR_RETURN(const WeightsReference reference, ParseWeightsReference(text));
  std::vector<std::shared_ptr<const void>> dropped;  // freed after the lock is gone
  {
    std::lock_guard lock(mutex_);
    const auto at = names_.find(reference.name);
    if (at != names_.end()) {
      Name& entry = at->second;
      dropped.reserve(1 + entry.pending.size());  // nothing may fail half done
      if (entry.sealed != nullptr &&
          (!reference.version.has_value() || *reference.version == entry.sealed->version())) {
        entry.sealed->retired_.store(true, std::memory_order_release);
        dropped.push_back(std::exchange(entry.sealed, nullptr));
      }
      for (auto it = entry.pending.begin(); it != entry.pending.end();) {
        if (reference.version.has_value() && *reference.version != it->first) {
          ++it;
          continue;
        }
        dropped.push_back(it->second);
        it = entry.pending.erase(it);
      }
      if (entry.empty()) names_.erase(at);
      versions_held_ -= static_cast<int64_t>(dropped.size());
    }
  }
  if (dropped.empty()) {
    return FieldError({"weights", std::string(text)}, Reason::kWeightsNotFound,
                      absl::StrCat("weights: nothing is registered as ", View(text)));
  }
  on_retired_();
  return static_cast<int>(dropped.size());
}

std::vector<WeightsInfo> WeightsRegistry::List() const {
  std::vector<std::pair<std::shared_ptr<const WeightsVersion>, bool>> versions;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [name, entry] : names_) {
      if (entry.sealed != nullptr) versions.emplace_back(entry.sealed, true);
      for (const auto& [version, pending] : entry.pending) {
        versions.emplace_back(pending->version, false);
      }
    }
  }
  std::vector<WeightsInfo> list;
  list.reserve(versions.size());
  for (const auto& [weights, sealed] : versions) {
    list.push_back({weights->spec(), weights->version(), sealed, weights->bytes()});
  }
  return list;
}

absl::StatusOr<WeightsInfo> WeightsRegistry::Find(std::string_view name, int64_t version) const {
  std::shared_ptr<const WeightsVersion> found;
  bool sealed = false;
  {
    std::lock_guard lock(mutex_);
    if (const auto at = names_.find(name); at != names_.end()) {
      const auto pending = at->second.pending.find(version);
      sealed = at->second.sealed != nullptr && at->second.sealed->version() == version;
      if (sealed) {
        found = at->second.sealed;
      } else if (pending != at->second.pending.end()) {
        found = pending->second->version;
      }
    }
  }
  if (found == nullptr) {
    return ReasonError(Reason::kWeightsNotFound,
                       absl::StrCat("weights: no version ", version, " of ", View(name)));
  }
  return WeightsInfo{found->spec(), version, sealed, found->bytes()};
}

WeightsRegistry::Use WeightsRegistry::use() const {
  Use use;
  std::lock_guard lock(mutex_);
  use.versions = versions_held_;
  for (const auto& [name, entry] : names_) {
    if (entry.sealed != nullptr) use.bytes += entry.sealed->bytes();
    for (const auto& [version, pending] : entry.pending) use.bytes += pending->version->bytes();
  }
  return use;
}

}  // namespace tetrad
