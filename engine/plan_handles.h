// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// PlanHandle: what clients hold of prepared plans.
//
// It names a signature and the weights it was prepared with. It pins neither
// plan nor memory: an evicted plan is built again at the next use.
#pragma once

#include <memory>
#include <string>

#include "engine/handle_table.h"
#include "engine/plan_cache.h"

namespace tetrad {

struct PlanHandle {
  PlanKey key;
  std::string weights;  // reference as the client gave it

  // Host memory it holds: a signature may have very many groups.
  int64_t host_bytes() const {
    return static_cast<int64_t>(sizeof(PlanHandle) + sizeof(Signature) + weights.size() +
                                key.signature().groups.size() * sizeof(GroupShape));
  }
};

using PlanHandles = HandleTable<std::shared_ptr<const PlanHandle>>;

}  // namespace tetrad
