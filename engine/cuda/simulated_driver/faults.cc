// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/simulated_driver/faults.h"

namespace tetrad::cuda::simulated {
namespace {

bool Counts(const Faults::Fault& fault, EntryPoint entry) {
  if (fault.entry.has_value()) return *fault.entry == entry;
  if (fault.waits) {
    return entry == EntryPoint::kStreamSynchronize || entry == EntryPoint::kEventSynchronize ||
           entry == EntryPoint::kCtxSynchronize;
  }
  if (fault.breaks) return Kind(entry) != CallKind::kQuestion;
  return Kind(entry) == CallKind::kOrdinary;
}

}  // namespace

std::optional<Faults::Fault> Faults::Meet(EntryPoint entry) {
  ++calls_[static_cast<size_t>(entry)];
  std::optional<Fault> met;
  for (auto fault = pending_.begin(); fault != pending_.end();) {
    if (Counts(*fault, entry) && fault->calls_left-- == 0) {
      met = *fault;
      fault = pending_.erase(fault);
    } else {
      ++fault;
    }
  }
  return met;
}

}  // namespace tetrad::cuda::simulated
