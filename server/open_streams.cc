// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/open_streams.h"

#include <vector>

namespace tetrad {

OpenStreams::Membership& OpenStreams::Membership::operator=(Membership&& other) noexcept {
  Leave();
  streams_ = std::exchange(other.streams_, nullptr);
  kind_ = other.kind_;
  id_ = other.id_;
  return *this;
}

void OpenStreams::Membership::Leave() {
  if (streams_ == nullptr) return;
  OpenStreams& streams = *std::exchange(streams_, nullptr);
  std::lock_guard lock(streams.mutex_);
  streams.listeners_.erase(id_);
  --streams.open_[static_cast<size_t>(kind_)];
}

OpenStreams::Joined OpenStreams::Join(StreamKind kind, Listener listener) {
  auto shared = std::make_shared<const Listener>(std::move(listener));
  std::lock_guard lock(mutex_);
  listeners_.emplace(++last_, std::move(shared));
  ++open_[static_cast<size_t>(kind)];
  return {Membership(this, kind, last_), stage_};
}

void OpenStreams::Enter(DrainStage stage) {
  std::vector<std::shared_ptr<const Listener>> listeners;
  {
    std::lock_guard lock(mutex_);
    if (stage <= stage_) return;  // a drain does not go back
    stage_ = stage;
    for (const auto& [id, listener] : listeners_) listeners.push_back(listener);
  }
  for (const auto& listener : listeners) (*listener)(stage);
}

int64_t OpenStreams::open(StreamKind kind) const {
  std::lock_guard lock(mutex_);
  return open_[static_cast<size_t>(kind)];
}

}  // namespace tetrad
