// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
//   NAME_fuzz_test CORPUS
//
// Replays a fuzz target's corpus and seeded mutations of it, with any compiler; what is wrong
// ends the process. TETRAD_LONG in the environment is the number of mutations of each corpus
// file; without it there are kMutations in all.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr long kMutations = 4000;

using Inputs = std::vector<std::string>;

Inputs ReadAll(const char* folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files.push_back(entry.path());
  }
  std::ranges::sort(files);
  Inputs inputs;
  for (const auto& file : files) {
    std::ifstream stream(file, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  return inputs;
}

// In memory of just that size: a read beyond it shows under a sanitizer.
void Feed(const std::string& bytes) {
  const std::vector<uint8_t> exact(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

std::string Mutate(std::string bytes, const Inputs& inputs, std::mt19937_64& random) {
  for (uint64_t i = 1 + random() % 4; i > 0; --i) {
    const size_t at = bytes.empty() ? 0 : random() % bytes.size();
    switch (random() % 7) {
      case 0:
        if (!bytes.empty()) bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes.erase(at, random() % 8);
        break;
      case 2:
        bytes.insert(at, 1 + random() % 4, static_cast<char>(random()));
        break;
      case 3:
        bytes.insert(at, bytes.substr(at, random() % 64));
        break;
      case 4:
        bytes.resize(at);
        break;
      case 5: {
        const std::string& other = inputs[random() % inputs.size()];
        if (!other.empty()) bytes.insert(at, other.substr(random() % other.size(), random() % 64));
        break;
      }
      default:
        if (!bytes.empty()) bytes[at] ^= static_cast<char>(1 << random() % 8);
    }
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  const Inputs inputs = argc == 2 ? ReadAll(argv[1]) : Inputs();
  if (inputs.empty()) {
    std::fprintf(stderr, "usage: %s CORPUS, a folder with files\n", argv[0]);
    return 2;
  }
  const char* const asked = std::getenv("TETRAD_LONG");
  const long mutations = asked != nullptr
                             ? std::max(1L, std::atol(asked))
                             : std::max(1L, kMutations / static_cast<long>(inputs.size()));
  std::mt19937_64 random(20261201);
  for (const std::string& input : inputs) {
    Feed(input);
    for (long i = 0; i < mutations; ++i) Feed(Mutate(input, inputs, random));
  }
  std::printf("%zu inputs, %ld mutations of each\n", inputs.size(), mutations);
  return 0;
}
