// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/images.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/portable.h"
#include "kernels/cuda/proof.h"
#include "kernels/cuda/rates.h"
#include "kernels/sm90/gemm.h"
#include "kernels/sm90/pack.h"
#include "kernels/sm90/prepare.h"

namespace tetrad::cuda {
namespace {

using testing::HasSubstr;

std::string Describe(const KernelImage* image) {
  if (image == nullptr) return "none";
  return std::string(image->unit) + (image->form == ImageForm::kPtx ? " ptx " : " cubin ") +
         std::to_string(image->capability) + (image->specific ? "a" : "");
}

TEST(ChooseImageTest, TakesTheNearestThatLoads) {
  const std::vector<KernelImage> images = {
      {"u", 80, ImageForm::kCubin},  {"u", 86, ImageForm::kCubin},
      {"u", 90, ImageForm::kCubin},  {"u", 90, ImageForm::kCubin, true},
      {"u", 100, ImageForm::kCubin}, {"u", 80, ImageForm::kPtx},
      {"u", 90, ImageForm::kPtx},    {"other", 80, ImageForm::kCubin},
      {"new", 90, ImageForm::kPtx},  {"exact", 100, ImageForm::kCubin, true},
  };
  const struct {
    const char* unit;
    int capability;
    const char* expected;
  } cases[] = {
      {"u", 80, "u cubin 80"},
      {"u", 86, "u cubin 86"},
      {"u", 87, "u cubin 86"},
      {"u", 89, "u cubin 86"},
      {"u", 90, "u cubin 90a"},
      {"u", 91, "u cubin 90"},
      {"u", 100, "u cubin 100"},
      {"u", 103, "u cubin 100"},
      {"u", 120, "u ptx 90"},
      {"u", 75, "none"},
      {"other", 80, "other cubin 80"},
      {"other", 90, "none"},
      {"new", 86, "none"},
      {"new", 121, "new ptx 90"},
      {"exact", 100, "exact cubin 100a"},
      {"exact", 103, "none"},
      {"absent", 90, "none"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(Describe(ChooseImage(images, c.unit, c.capability)), c.expected)
        << c.unit << " on " << c.capability;
  }
}

const char* const kUnits[] = {"portable", "completion", "proof", "rates", "pack", "prepare"};
const char* const kHopperUnits[] = {"gemm_fp16", "gemm_bf16"};

std::vector<KernelImage> AllImages() {
  std::vector<KernelImage> all(KernelImages().begin(), KernelImages().end());
  all.insert(all.end(), HopperImages().begin(), HopperImages().end());
  return all;
}

TEST(KernelImagesTest, EveryUnitLoadsFrom80On) {
  for (const char* unit : kUnits) {
    for (const int capability : {80, 86, 87, 89, 90, 100, 103, 110, 120, 121}) {
      EXPECT_NE(ChooseImage(KernelImages(), unit, capability), nullptr) << unit << capability;
    }
    EXPECT_EQ(ChooseImage(KernelImages(), unit, 75), nullptr) << unit;
    EXPECT_EQ(ChooseImage(KernelImages(), unit, 90)->form, ImageForm::kCubin);
    EXPECT_EQ(ChooseImage(KernelImages(), unit, 100)->form, ImageForm::kCubin);
  }
  EXPECT_TRUE(ChooseImage(KernelImages(), "rates", 90)->specific);
}

TEST(KernelImagesTest, HopperUnitsAreFor90Alone) {
  for (const char* unit : kHopperUnits) {
    const KernelImage* image = ChooseImage(HopperImages(), unit, 90);
    ASSERT_NE(image, nullptr) << unit;
    EXPECT_EQ(Describe(image), std::string(unit) + " cubin 90a");
    for (const KernelImage& other : HopperImages()) {
      EXPECT_TRUE(other.unit != unit || &other == image) << Describe(&other);
    }
    for (const int capability : {80, 86, 87, 89, 100, 103, 110, 120, 121}) {
      EXPECT_EQ(ChooseImage(HopperImages(), unit, capability), nullptr) << unit << capability;
    }
  }
}

std::string Name(const KernelImage& image) {
  return absl::StrCat(std::string(image.unit), image.form == ImageForm::kPtx ? "_compute_" : "_sm_",
                      image.capability, image.specific ? "a" : "");
}

// What the image was compressed from, of the build tree.
std::string ReadPlain(const KernelImage& image) {
  std::ifstream in(absl::StrCat(TETRAD_CUDA_BUILT, "/", Name(image),
                                image.form == ImageForm::kPtx ? ".ptx" : ".cubin"),
                   std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(KernelImagesTest, CubinsAreElfAndPtxIsTextOfTheirArchitecture) {
  constexpr int kCudaMachine = 190;  // EM_CUDA
  for (const KernelImage& image : AllImages()) {
    const std::string what = Describe(&image);
    const std::string plain = ReadPlain(image);
    if (image.form == ImageForm::kCubin) {
      ASSERT_GT(plain.size(), sizeof(Elf64_Ehdr)) << what;
      Elf64_Ehdr header;
      std::memcpy(&header, plain.data(), sizeof(header));
      EXPECT_EQ(std::memcmp(header.e_ident, ELFMAG, SELFMAG), 0) << what;
      EXPECT_EQ(header.e_machine, kCudaMachine) << what;
    } else {
      EXPECT_THAT(plain, HasSubstr(absl::StrCat(".target sm_", image.capability, "\n"))) << what;
    }
  }
}

// A fat binary: its header, then of each image an entry and the payload. No document of the
// toolkit tells the layout of an entry; this is what nvcc 13.0 writes.
struct FatHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;  // of this one
  uint64_t bytes;         // of all that follows it
};
struct FatEntry {
  uint16_t kind;
  uint16_t version;
  uint32_t entry_bytes;  // with what may follow this structure: options of ptxas
  uint64_t payload_bytes;
  uint32_t compressed_bytes;  // less the padding; 0: the payload is as it was
  uint32_t unused[2];
  uint32_t architecture;
  uint64_t source;
  uint64_t flags;
  uint64_t reserved;
  uint64_t plain_bytes;
};
static_assert(sizeof(FatHeader) == 16 && sizeof(FatEntry) == 64);
constexpr uint32_t kFatMagic = 0xBA55ED50;
constexpr uint16_t kPtxEntry = 1;
constexpr uint16_t kElfEntry = 2;
constexpr uint64_t kSpecificFlag = 0x100000;  // of FatEntry::flags: for "sm_90a"

TEST(KernelImagesTest, EachIsAFatBinaryOfJustThisImage) {
  for (const KernelImage& image : AllImages()) {
    const std::string what = Describe(&image);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(image.bytes.data()) % 64, 0u) << what;
    FatHeader header;
    FatEntry entry;
    ASSERT_GT(image.bytes.size(), sizeof(header) + sizeof(entry)) << what;
    std::memcpy(&header, image.bytes.data(), sizeof(header));
    std::memcpy(&entry, image.bytes.data() + sizeof(header), sizeof(entry));
    ASSERT_EQ(header.magic, kFatMagic) << what;
    EXPECT_EQ(header.version, 1) << what;
    EXPECT_EQ(header.header_bytes, sizeof(header)) << what;
    EXPECT_EQ(header.bytes, image.bytes.size() - sizeof(header)) << what;
    // One entry: with it the bytes are used up.
    EXPECT_EQ(entry.entry_bytes + entry.payload_bytes, header.bytes) << what;
    EXPECT_EQ(entry.kind, image.form == ImageForm::kPtx ? kPtxEntry : kElfEntry) << what;
    EXPECT_EQ(entry.architecture, static_cast<uint32_t>(image.capability)) << what;
    EXPECT_EQ((entry.flags & kSpecificFlag) != 0, image.specific) << what;
    EXPECT_GT(entry.compressed_bytes, 0u) << what;
    EXPECT_LE(entry.compressed_bytes, entry.payload_bytes) << what;
    const std::string plain = ReadPlain(image);
    if (image.form == ImageForm::kCubin) {
      EXPECT_EQ(entry.plain_bytes, plain.size()) << what;
      EXPECT_LT(image.bytes.size(), plain.size() / 2) << what;
    } else {
      // Less comments and white space that no one needs.
      EXPECT_LE(entry.plain_bytes, plain.size()) << what;
      EXPECT_LT(image.bytes.size(), plain.size()) << what;
    }
  }
}

TEST(KernelImagesTest, EntriesAreThere) {
  std::vector<std::pair<std::string, std::string>> entries = {
      {"portable", PortableEntry(ActivationType::kNvfp4)},
      {"portable", PortableEntry(ActivationType::kFp16)},
      {"portable", PortableEntry(ActivationType::kBf16)},
      {"completion", kCompletionEntry},
      {"proof", kProofFillEntry},
      {"proof", kProofCompareEntry},
      {"rates", kReadRateEntry},
      {"rates", kMmaRateEntry},
      {"pack", sm90::kPackEntry},
      {"pack", sm90::kUnpackEntry},
      {"prepare", sm90::kPrepareEntry},
      {"prepare", sm90::kSnapshotEntry},
  };
  for (const sm90::Instance& instance : sm90::kInstances) {
    entries.emplace_back("gemm_fp16", absl::StrCat("tetrad_sm90_fp16_", instance.name));
    entries.emplace_back("gemm_bf16", absl::StrCat("tetrad_sm90_bf16_", instance.name));
  }
  for (const KernelImage& image : AllImages()) {
    const std::string plain = ReadPlain(image);
    for (const auto& [unit, entry] : entries) {
      if (unit != image.unit) continue;
      EXPECT_NE(plain.find(entry), plain.npos) << Describe(&image) << " " << entry;
    }
  }
}

// What ptxas says of one entry.
struct Resources {
  int registers = -1;
  int spilled = -1;  // bytes, stores and loads
  int stack = -1;
  int shared = 0;  // static
};

// By "unit architecture entry".
std::map<std::string, Resources> ReadResources() {
  std::map<std::string, Resources> all;
  const std::regex entry_line("Compiling entry function '(\\w+)' for '(\\w+)'");
  const std::regex memory_line("(\\d+) bytes stack frame, (\\d+) bytes spill stores, (\\d+) bytes");
  const std::regex used_line("Used (\\d+) registers");
  const std::regex shared_line("(\\d+) bytes smem");
  for (const KernelImage& image : AllImages()) {
    if (image.form != ImageForm::kCubin) continue;
    const std::string architecture =
        "sm_" + std::to_string(image.capability) + (image.specific ? "a" : "");
    const std::string unit(image.unit);
    std::ifstream in(absl::StrCat(TETRAD_CUDA_BUILT, "/", Name(image), ".resources"));
    Resources* current = nullptr;
    for (std::string line; std::getline(in, line);) {
      std::smatch match;
      if (std::regex_search(line, match, entry_line)) {
        EXPECT_EQ(match[2], architecture);
        current = &all[absl::StrCat(unit, " ", architecture, " ", match[1].str())];
      }
      if (current == nullptr) continue;
      if (std::regex_search(line, match, memory_line)) {
        current->stack = std::stoi(match[1]);
        current->spilled = std::stoi(match[2]) + std::stoi(match[3]);
      }
      if (std::regex_search(line, match, used_line)) current->registers = std::stoi(match[1]);
      if (std::regex_search(line, match, shared_line)) current->shared = std::stoi(match[1]);
    }
  }
  return all;
}

struct Bound {
  const char* unit;
  const char* entry;
  int registers;  // at most; 0: no image but a specific one
  int shared;     // static, exactly
  int specific_registers = 0;
  int specific_shared = 0;
};

TEST(ResourcesTest, NoEntrySpillsOrGrows) {
  const Bound bounds[] = {
      {"portable", "tetrad_portable_nvfp4", 128, 4352},
      {"portable", "tetrad_portable_fp16", 128, 4352},
      {"portable", "tetrad_portable_bf16", 128, 4352},
      {"completion", "tetrad_completion", 32, 0},
      {"proof", "tetrad_proof_fill", 64, 0},
      {"proof", "tetrad_proof_compare", 64, 0},
      {"pack", "tetrad_sm90_pack", 40, 18496},
      {"pack", "tetrad_sm90_unpack", 40, 18496},
      {"prepare", "tetrad_sm90_prepare", 32, 1568},
      {"prepare", "tetrad_sm90_snapshot", 24, 0},
      {"rates", "tetrad_rate_read", 64, 0, 64, 0},
      {"rates", "tetrad_rate_mma", 96, 0, 168, 49152},
      {"gemm_fp16", "tetrad_sm90_fp16_mixed", 0, 0, 168, 0},
      {"gemm_fp16", "tetrad_sm90_fp16_wide", 0, 0, 168, 0},
      {"gemm_fp16", "tetrad_sm90_fp16_even", 0, 0, 168, 0},
      {"gemm_fp16", "tetrad_sm90_fp16_prefill", 0, 0, 168, 0},
      {"gemm_fp16", "tetrad_sm90_fp16_skewed", 0, 0, 168, 0},
      {"gemm_fp16", "tetrad_sm90_fp16_decode", 0, 0, 96, 0},
      {"gemm_bf16", "tetrad_sm90_bf16_mixed", 0, 0, 168, 0},
      {"gemm_bf16", "tetrad_sm90_bf16_wide", 0, 0, 168, 0},
      {"gemm_bf16", "tetrad_sm90_bf16_even", 0, 0, 168, 0},
      {"gemm_bf16", "tetrad_sm90_bf16_prefill", 0, 0, 168, 0},
      {"gemm_bf16", "tetrad_sm90_bf16_skewed", 0, 0, 168, 0},
      {"gemm_bf16", "tetrad_sm90_bf16_decode", 0, 0, 96, 0},
  };
  const std::map<std::string, Resources> all = ReadResources();
  size_t checked = 0;
  for (const Bound& bound : bounds) {
    for (const char* architecture : {"sm_80", "sm_90", "sm_100", "sm_90a"}) {
      const bool specific = std::string_view(architecture).back() == 'a';
      if ((specific ? bound.specific_registers : bound.registers) == 0) continue;
      const std::string key = std::string(bound.unit) + " " + architecture + " " + bound.entry;
      const auto found = all.find(key);
      ASSERT_NE(found, all.end()) << key;
      const Resources& used = found->second;
      EXPECT_EQ(used.stack, 0) << key;
      EXPECT_EQ(used.spilled, 0) << key;
      EXPECT_GT(used.registers, 0) << key;
      EXPECT_LE(used.registers, specific ? bound.specific_registers : bound.registers) << key;
      EXPECT_EQ(used.shared, specific ? bound.specific_shared : bound.shared) << key;
      ++checked;
    }
  }
  EXPECT_EQ(checked, all.size()) << "an entry without a bound";
}

// Of the CUDA C++ Programming Guide, "Compute Capabilities".
constexpr int kRegisters = 65536;  // of a multiprocessor, all architectures
constexpr int kSharedBytesOf90 = 228 * 1024;
constexpr int kReservedBytes = 1024;  // of shared memory, what the system takes of a CTA

// One CTA; its dynamic shared memory is what no report of ptxas knows.
TEST(ResourcesTest, HopperInstancesFit) {
  const std::map<std::string, Resources> all = ReadResources();
  for (const sm90::Instance& instance : sm90::kInstances) {
    EXPECT_LE(sm90::SharedBytes(instance), 227 * 1024) << instance.name;
    for (const char* format : {"fp16", "bf16"}) {
      const auto found = all.find(
          absl::StrCat("gemm_", format, " sm_90a tetrad_sm90_", format, "_", instance.name));
      ASSERT_NE(found, all.end()) << format << " " << instance.name;
      EXPECT_LE(found->second.registers * sm90::Threads(instance), kRegisters) << instance.name;
      // With less the consumers would wait for registers that nobody gives up.
      EXPECT_GE(found->second.registers, kRegisters / sm90::Threads(instance) / 8 * 8)
          << instance.name;
    }
  }
}

TEST(ResourcesTest, PrepareFitsBesideDecode) {
  const std::map<std::string, Resources> all = ReadResources();
  const auto* const decode =
      std::ranges::find(sm90::kInstances, std::string_view("decode"), &sm90::Instance::name);
  ASSERT_NE(decode, std::end(sm90::kInstances));
  const int of_decode = all.at("gemm_fp16 sm_90a tetrad_sm90_fp16_decode").registers;
  const Resources& of_prepare = all.at("prepare sm_90 tetrad_sm90_prepare");
  constexpr int kGranule = 8;  // registers of a thread
  EXPECT_LE(of_decode * sm90::Threads(*decode) +
                (of_prepare.registers + kGranule - 1) / kGranule * kGranule * sm90::kPrepareThreads,
            kRegisters);
  EXPECT_LE(sm90::SharedBytes(*decode) + of_prepare.shared + 2 * kReservedBytes, kSharedBytesOf90);
}

TEST(ResourcesTest, PromisedCtasOfThePortableKernelFit) {
  constexpr int kRegisterGranule = 256;  // a warp
  const std::map<std::string, int> shared_bytes = {
      {"sm_80", 164 * 1024}, {"sm_90", kSharedBytesOf90}, {"sm_100", 228 * 1024}};
  int checked = 0;
  for (const auto& [key, used] : ReadResources()) {
    if (key.find("portable") != 0) continue;
    const std::string architecture = key.substr(9, key.find(' ', 9) - 9);
    const int of_warp =
        (used.registers * 32 + kRegisterGranule - 1) / kRegisterGranule * kRegisterGranule;
    EXPECT_GE(kRegisters / (of_warp * kPortableThreads / 32), kPortableCtasPerMultiprocessor);
    EXPECT_GE(shared_bytes.at(architecture) / (kPortableSharedBytes + used.shared + kReservedBytes),
              kPortableCtasPerMultiprocessor);
    ++checked;
  }
  EXPECT_EQ(checked, 9);
}

}  // namespace
}  // namespace tetrad::cuda
