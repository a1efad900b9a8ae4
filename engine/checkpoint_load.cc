// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint_load.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "engine/checkpoint/printable.h"
#include "engine/checkpoint/projection.h"
#include "engine/load_parts.h"
#include "engine/support/error_detail.h"
#include "engine/support/no_memory.h"
#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

// Of a part: large enough that a device has several pieces of it under way one
// after the other, small enough that threads end together and a stop is quick.
constexpr int64_t kPartBytes = int64_t{16} << 20;
constexpr int kMostDefaultThreads = 16;
constexpr auto kProgressInterval = std::chrono::milliseconds(50);

absl::StatusOr<WeightsSpec> SpecOf(const ProjectionInfo& info, const CheckpointSource& source,
                                   const std::string& name) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (info.n > kMost || info.k > kMost) {
    return ReasonError(Reason::kIllegalCheckpoint,
                       absl::StrCat("pattern '", Printable(source.pattern), "': n=", info.n,
                                    ", k=", info.k, ", limit ", kMost));
  }
  WeightsSpec spec;
  spec.name = name;
  spec.groups.assign(static_cast<size_t>(info.groups),
                     {static_cast<int32_t>(info.n), static_cast<int32_t>(info.k)});
  spec.scale_layout = ScaleLayout::kLinear;
  spec.alpha = info.alpha;
  spec.input_scale = info.input_scale;
  spec.source = absl::StrCat("checkpoint:", source.directory, ":", source.pattern);
  return spec;
}

absl::Status Stopped() { return ReasonError(Reason::kCancelled, "the load was stopped"); }

// What the threads of one load share. Helpers hold it by shared pointer, since a
// job may start when the load is over; what this refers to is touched only between
// Enter() and Leave(), which Close() waits for.
class Reading {
 public:
  Reading(const Projection& projection, const std::string& name, int64_t version,
          WeightsRegistry& registry)
      : projection_(projection),
        name_(name),
        version_(version),
        registry_(registry),
        parts_(projection.info().groups, static_cast<int64_t>(projection.code_bytes()),
               static_cast<int64_t>(projection.scale_bytes()), kPartBytes) {}

  // The whole of a helper's job.
  void Help() {
    if (!Enter()) return;
    while (LoadNext()) {
    }
    Leave();
  }

  // Lets no more helpers in and waits for those that are.
  void Close() {
    while (!AwaitHelpers(kProgressInterval)) {
    }
  }

  // Loads on this thread what helpers do not, and waits for them.
  absl::Status Run(LoadObserver observe) {
    const auto total = static_cast<int64_t>(projection_.info().total_bytes);
    do {
      if (!observe(done_bytes_.load(std::memory_order_relaxed), total)) Stop();
    } while (LoadNext());
    while (!AwaitHelpers(kProgressInterval)) {
      if (!observe(done_bytes_.load(std::memory_order_relaxed), total)) Stop();
    }
    std::lock_guard lock(mutex_);
    if (error_.has_value()) return error_->status;
    return stopped_.load(std::memory_order_relaxed) ? Stopped() : absl::OkStatus();
  }

 private:
  struct Error {
    LoadPlace place;
    absl::Status status;
  };

  bool Enter() {
    std::lock_guard lock(mutex_);
    if (closed_) return false;
    ++helpers_;
    return true;
  }

  void Leave() {
    std::lock_guard lock(mutex_);
    if (--helpers_ == 0) idle_.notify_all();
  }

  // Lets no more helpers in. True: none is left.
  bool AwaitHelpers(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    closed_ = true;
    return idle_.wait_for(lock, limit, [this] { return helpers_ == 0; });
  }

  void Stop() { stopped_.store(true, std::memory_order_relaxed); }

  // Whether what begins at `place` is still of interest: an error before it would
  // be the one that counts.
  bool Matters(const LoadPlace& place) {
    if (stopped_.load(std::memory_order_relaxed)) return false;
    if (!failed_.load(std::memory_order_relaxed)) return true;
    std::lock_guard lock(mutex_);
    return place < error_->place;
  }

  void Note(const LoadPlace& place, absl::Status status) {
    std::lock_guard lock(mutex_);
    if (error_.has_value() && error_->place <= place) return;
    error_ = {place, std::move(status)};
    failed_.store(true, std::memory_order_relaxed);
  }

  // Takes the next part and loads it. False: there is none, or none that matters.
  bool LoadNext() {
    const int64_t index = next_.fetch_add(1, std::memory_order_relaxed);
    if (index >= parts_.size()) return false;
    const LoadParts::Part part = parts_[index];
    LoadPlace place = parts_.PlaceOf(part.operand, part.offset);
    if (!Matters(place)) return false;
    int64_t at = part.offset;
    bool given_up = false;
    const absl::Status status = registry_.Fill(
        name_, version_, part.operand, part.offset, part.bytes,
        [&](std::span<std::byte> piece) -> absl::Status {
          while (!piece.empty()) {
            place = parts_.PlaceOf(part.operand, at);
            given_up = !Matters(place);
            if (given_up) return Stopped();
            const int64_t left = parts_.plane_bytes(part.operand) - place.offset;
            const auto now = piece.first(std::min(piece.size(), static_cast<size_t>(left)));
            TETRAD_RETURN_IF_ERROR(Read(place, now));
            piece = piece.subspan(now.size());
            at += static_cast<int64_t>(now.size());
            done_bytes_.fetch_add(static_cast<int64_t>(now.size()), std::memory_order_relaxed);
          }
          return absl::OkStatus();
        });
    if (!status.ok() && !given_up) Note(place, status);
    return true;
  }

  absl::Status Read(const LoadPlace& place, std::span<std::byte> out) const {
    const std::span bytes(reinterpret_cast<uint8_t*>(out.data()), out.size());
    const auto offset = static_cast<uint64_t>(place.offset);
    return place.operand == WeightsOperand::kScales
               ? projection_.ReadScales(place.group, offset, bytes)
               : projection_.ReadCodes(place.group, offset, bytes);
  }

  const Projection& projection_;
  const std::string& name_;
  const int64_t version_;
  WeightsRegistry& registry_;
  const LoadParts parts_;
  std::atomic<int64_t> next_{0};
  std::atomic<int64_t> done_bytes_{0};
  std::atomic<bool> stopped_{false};
  std::atomic<bool> failed_{false};  // error_ has a value
  std::mutex mutex_;
  std::condition_variable idle_;
  std::optional<Error> error_;  // the first by place; guarded by mutex_
  int helpers_ = 0;             // at work; guarded by mutex_
  bool closed_ = false;         // guarded by mutex_
};

}  // namespace

int DefaultLoadThreads(int processors) {
  return std::clamp(processors - 2, 1, kMostDefaultThreads);
}

absl::StatusOr<CheckpointWeights> LoadCheckpoint(const Root& root, const CheckpointSource& source,
                                                 const std::string& name, WeightsRegistry& registry,
                                                 const LoadTeam& team, LoadObserver observe) {
  TETRAD_ASSIGN_OR_RETURN(const Projection projection,
                          OpenProjection(root, source.directory, source.pattern,
                                         {.dialect = source.dialect,
                                          .ignore_input_scales = source.ignore_input_scales}));
  const ProjectionInfo& info = projection.info();
  TETRAD_ASSIGN_OR_RETURN(WeightsSpec spec, SpecOf(info, source, name));
  TETRAD_ASSIGN_OR_RETURN(const int64_t version, registry.Begin(std::move(spec)));
  absl::Cleanup abandon = [&] { registry.Abandon(name, version); };

  const auto reading = std::make_shared<Reading>(projection, name, version, registry);
  const absl::Cleanup close = [&] { reading->Close(); };
  for (int i = 0; i < team.helpers; ++i) {
    if (!team.post([reading] { reading->Help(); })) break;
  }
  TETRAD_RETURN_IF_ERROR(reading->Run(observe));
  const auto total = static_cast<int64_t>(info.total_bytes);
  if (!observe(total, total)) return Stopped();
  TETRAD_ASSIGN_OR_RETURN(WeightsInfo sealed, registry.Seal(name, version));
  std::move(abandon).Cancel();
  return CheckpointWeights{std::move(sealed), info.notes};
}

}  // namespace tetrad
