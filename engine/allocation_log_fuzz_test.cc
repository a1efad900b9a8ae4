// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Replays the fuzz target's corpus and seeded mutations of it, with any compiler. TETRAD_LONG in
// the environment is the number of mutations of each corpus file, 2000 without it.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/allocation_log.h"
#include "kernels/random.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace tetrad {
namespace {

constexpr char kCorpus[] = "engine/allocation_log_corpus";

void Feed(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

std::string Mutate(std::string bytes, Random& random) {
  constexpr const char* kTokens[] = {" ",
                                     "\n",
                                     "0",
                                     "-1",
                                     "00",
                                     "1",
                                     "18446744073709551615",
                                     "18446744073709551616",
                                     "9223372036854775807",
                                     "allocate block ",
                                     "free whole ",
                                     " OK\n",
                                     "RESOURCE_EXHAUSTED",
                                     "stopped limit_bytes=",
                                     "\xFF\xFE",
                                     "\r\n",
                                     "1 0 allocate block 9 1 OK\n",
                                     "1 0 free block 9 1 OK\n"};
  for (uint32_t i = 1 + random.Below(4); i > 0; --i) {
    const size_t at = bytes.empty() ? 0 : random.Below(static_cast<uint32_t>(bytes.size()));
    switch (random.Below(6)) {
      case 0:
        if (!bytes.empty()) bytes[at] = static_cast<char>(random.Next());
        break;
      case 1:
        bytes.erase(at, random.Below(8));
        break;
      case 2:
        bytes.insert(at, kTokens[random.Below(std::size(kTokens))]);
        break;
      case 3:
        bytes.insert(at, bytes.substr(at, random.Below(64)));
        break;
      case 4:
        bytes.resize(at);
        break;
      default:
        if (!bytes.empty()) bytes[at] ^= static_cast<char>(1 << random.Below(8));
    }
  }
  return bytes;
}

TEST(AllocationLogFuzzTest, CorpusAndItsMutationsAreHandled) {
  const char* asked = std::getenv("TETRAD_LONG");
  const long mutations = asked == nullptr ? 2000 : std::max(1L, std::atol(asked));
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(kCorpus)) {
    files.push_back(entry.path());
  }
  std::ranges::sort(files);
  ASSERT_GT(files.size(), 8u);
  Random random(20240715);
  for (const auto& file : files) {
    SCOPED_TRACE(file);
    std::ifstream stream(file, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
    // The name says what is expected.
    EXPECT_EQ(ParseAllocationLog(bytes).ok(), file.filename().string().starts_with("good_"));
    Feed(bytes);
    // Mostly behind an honest first line, so that mutations reach the events.
    const std::string head = bytes.substr(0, bytes.find('\n') + 1);
    for (long i = 0; i < mutations; ++i) {
      Feed(random.OneIn(8) ? Mutate(bytes, random)
                           : head + Mutate(bytes.substr(head.size()), random));
    }
  }
}

}  // namespace
}  // namespace tetrad
