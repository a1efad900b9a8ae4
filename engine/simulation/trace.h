// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Trace: what happened in a world, as a hash and on demand as lines, and the
// first promise that was broken. Only what is a function of the seed goes in:
// no names with secrets, no addresses, no times of the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

#include "engine/simulation/random.h"
#include "engine/support/instant.h"

namespace tetrad::simulation {

class Trace {
 public:
  // `lines`: how many of the last ones are kept; 0 keeps just the hash. With
  // `print` each is printed at once, so that it is seen even if the next event
  // ends the program.
  explicit Trace(size_t lines, bool print = false) : keep_(lines), print_(print) {}

  template <typename... Values>
  void Add(Instant now, std::string_view what, const Values&... values) {
    Hash(static_cast<uint64_t>(now));
    for (const char c : what) Hash(static_cast<uint64_t>(c));
    (Hash(static_cast<uint64_t>(values)), ...);
    if (keep_ == 0 && !print_) return;
    std::string line = absl::StrCat(now / 1000, " us  ", std::string(what));
    (absl::StrAppend(&line, " ", static_cast<int64_t>(values)), ...);
    if (print_) std::fprintf(stderr, "%s\n", line.c_str());
    if (keep_ == 0) return;
    if (lines_.size() == keep_) lines_.pop_front();
    lines_.push_back(std::move(line));
  }
  void Fail(std::string violation) {
    if (violation_.empty()) violation_ = std::move(violation);
  }

  bool failed() const { return !violation_.empty(); }
  const std::string& violation() const { return violation_; }
  const std::deque<std::string>& lines() const { return lines_; }
  uint64_t hash() const { return hash_; }

 private:
  void Hash(uint64_t value) { hash_ = Mix(hash_ ^ value); }

  const size_t keep_;
  const bool print_;
  std::deque<std::string> lines_;
  std::string violation_;
  uint64_t hash_ = 0;
};

}  // namespace tetrad::simulation
