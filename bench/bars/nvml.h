// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Nvml: what the management library of NVIDIA's driver says of a device. Opened
// at run time; on a machine without it everything is unknown. The few
// prototypes needed are declared in nvml.cc, since the toolkit may be absent.
// Thread-safe.
#pragma once

#include <optional>
#include <string>

namespace tetrad::bars {

struct Clocks {
  unsigned sm_mhz = 0;
  unsigned memory_mhz = 0;
};

class Nvml {
 public:
  Nvml();
  ~Nvml();
  Nvml(const Nvml&) = delete;

  // Of the driver package, e.g. "580.65.06".
  std::optional<std::string> DriverVersion() const;
  // Now. `uuid` as the driver's tools print it ("GPU-...").
  std::optional<Clocks> ClocksOf(const std::string& uuid) const;

 private:
  void* Find(const char* symbol) const;

  void* library_ = nullptr;  // null: not there, or not willing
};

}  // namespace tetrad::bars
