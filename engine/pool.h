// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Pool: device memory by the block. (Declared here; written elsewhere.)
#pragma once

#include <cstdint>

namespace tetrad {

class Pool {
 public:
  struct Stats {
    int64_t reserved_bytes = 0;  // taken from upstream
    int64_t block_bytes = 0;     // handed out, carved out of chunks
    int64_t whole_bytes = 0;     // handed out as allocations of their own
    int64_t free_bytes = 0;      // in chunks
    int64_t largest_free_bytes = 0;
    int64_t chunks = 0, blocks = 0, wholes = 0;
    int64_t allocations = 0, frees = 0, failures = 0;  // since the start
  };
};

}  // namespace tetrad
