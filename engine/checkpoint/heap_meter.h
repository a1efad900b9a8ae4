// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Test support: HeapMeter, the peak of what operator new handed out during its life.
//
// Linking it replaces the global operator new of the test program. One meter at a time.
#pragma once

#include <cstddef>

namespace tetrad::testing {

class HeapMeter {
 public:
  HeapMeter();

  // The most bytes alive at once since the meter was made, beyond those alive then.
  size_t peak() const;

 private:
  size_t before_;
};

}  // namespace tetrad::testing
