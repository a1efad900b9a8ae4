// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Replays the fuzz target's corpus and seeded mutations of it, with any compiler. TETRAD_LONG in
// the environment is the number of mutations of each corpus file, 200 without it.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/checkpoint/test_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace tetrad {
namespace {

constexpr char kCorpus[] = "engine/checkpoint/corpus";

void Feed(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

std::vector<std::filesystem::path> CorpusFiles() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(kCorpus)) {
    files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

// Keeps the length in front honest, so that mutations reach the parser behind it.
void FixHeaderLength(std::string& bytes) {
  const size_t end = bytes.rfind('}');
  if (bytes.size() < 9 || end == std::string::npos || end < 8) return;
  const uint64_t length = end + 1 - 8;
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i) & 0xFF);
}

std::string Mutate(std::string bytes, std::mt19937_64& random) {
  constexpr const char* kTokens[] = {"{",
                                     "}",
                                     "[",
                                     "]",
                                     ",",
                                     ":",
                                     "\"",
                                     "-1",
                                     "0.5",
                                     "1e9",
                                     "\\u0000",
                                     "null",
                                     "18446744073709551615",
                                     "\"__metadata__\":",
                                     "\"a\":",
                                     "\xFF\xFE",
                                     "F4",
                                     "[0,0]"};
  for (uint64_t i = 1 + random() % 4; i > 0; --i) {
    const size_t at = bytes.empty() ? 0 : random() % bytes.size();
    switch (random() % 6) {
      case 0:
        if (!bytes.empty()) bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes.erase(at, random() % 8);
        break;
      case 2:
        bytes.insert(at, kTokens[random() % std::size(kTokens)]);
        break;
      case 3:
        bytes.insert(at, bytes.substr(at, random() % 64));
        break;
      case 4:
        bytes.resize(at);
        break;
      default:
        if (!bytes.empty()) bytes[at] ^= static_cast<char>(1 << random() % 8);
    }
  }
  if (random() % 2 == 0) FixHeaderLength(bytes);
  return bytes;
}

TEST(SafetensorsFuzzTest, CorpusAndItsMutationsAreHandled) {
  const char* asked = std::getenv("TETRAD_LONG");
  const long mutations = asked == nullptr ? 200 : std::max(1L, std::atol(asked));
  const auto files = CorpusFiles();
  ASSERT_GT(files.size(), 10u);
  std::mt19937_64 random(20240607);
  for (const auto& file : files) {
    SCOPED_TRACE(file);
    const std::string bytes = testing::Slurp(file);
    Feed(bytes);
    for (long i = 0; i < mutations; ++i) Feed(Mutate(bytes, random));
  }
}

}  // namespace
}  // namespace tetrad
