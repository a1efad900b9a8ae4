// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// OpenStreams: the streams that clients leave open, told of the steps of a
// drain. Without it they would neither hear of the drain nor end by themselves.
//
// Thread-safe. Listeners are called without a lock, and possibly once more
// just after their Membership ended: what they refer to must be safe then (a
// weak pointer is). A Membership must not outlive its OpenStreams.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace tetrad {

enum class StreamKind : uint8_t { kAttach, kExecute };
inline constexpr size_t kStreamKinds = 2;

enum class DrainStage : uint8_t {
  kServing,
  kAnnounced,  // clients had better go elsewhere
  kClosed,     // nothing new is taken
};

class OpenStreams {
 public:
  using Listener = std::function<void(DrainStage)>;

  // Of one open stream; it leaves when this is destroyed.
  class Membership {
   public:
    Membership() = default;
    Membership(Membership&& other) noexcept
        : streams_(std::exchange(other.streams_, nullptr)), kind_(other.kind_), id_(other.id_) {}
    Membership& operator=(Membership&& other) noexcept;
    ~Membership() { Leave(); }

   private:
    friend class OpenStreams;
    Membership(OpenStreams* streams, StreamKind kind, uint64_t id)
        : streams_(streams), kind_(kind), id_(id) {}
    void Leave();
    OpenStreams* streams_ = nullptr;
    StreamKind kind_{};
    uint64_t id_ = 0;
  };

  struct Joined {
    Membership membership;
    DrainStage stage;  // now; `listener` hears later ones
  };
  Joined Join(StreamKind kind, Listener listener);
  void Enter(DrainStage stage);
  int64_t open(StreamKind kind) const;

 private:
  mutable std::mutex mutex_;
  DrainStage stage_ = DrainStage::kServing;                        // guarded by mutex_
  std::map<uint64_t, std::shared_ptr<const Listener>> listeners_;  // guarded by mutex_
  std::array<int64_t, kStreamKinds> open_{};                       // guarded by mutex_
  uint64_t last_ = 0;                                              // guarded by mutex_
};

}  // namespace tetrad
