// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The portable kernel's indices, against the fragment layouts of the PTX ISA and
// the banks of shared memory, both emulated here.
#include "kernels/cuda/portable_layout.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace tetrad::cuda {
namespace {

// Times the worst bank is visited by accesses of `bytes` that go together.
int BankConflicts(const std::vector<uint32_t>& addresses, uint32_t bytes) {
  std::map<uint32_t, std::set<uint32_t>> words_of_bank;
  for (const uint32_t address : addresses) {
    for (uint32_t word = address / 4; word < (address + bytes) / 4; ++word) {
      words_of_bank[word % 32].insert(word);
    }
  }
  size_t worst = 0;
  for (const auto& [bank, words] : words_of_bank) worst = std::max(worst, words.size());
  return static_cast<int>(worst);
}

// The byte that lane `lane` of ldmatrix.x4 finds in the low half of register `i`
// (the high half is the next number): row lane / 4 of matrix i, numbers
// 2 * (lane % 4) and on; row r of matrix i is where lane 8 i + r points.
template <class Address>
uint32_t LoadedByte(Address address, uint32_t lane, uint32_t i) {
  return address(8 * i + lane / 4) + lane % 4 * 4;
}

TEST(PortableLayoutTest, ChunksFillAnOperandOnce) {
  std::set<uint32_t> seen;
  for (uint32_t row = 0; row < kPortableTileRows; ++row) {
    for (uint32_t chunk = 0; chunk < kChunksPerRow; ++chunk) {
      const uint32_t offset = ChunkOffset(row, chunk);
      EXPECT_EQ(offset % kChunkBytes, 0u);
      EXPECT_LT(offset, static_cast<uint32_t>(kOperandBytes));
      EXPECT_TRUE(seen.insert(offset).second);
    }
  }
}

// mma.m16n8k16, A: a0 and a1 at row g, k 2q; a2, a3 at row g + 8; a4, a5 at row
// g, k + 8; a6, a7 at row g + 8, k + 8, two numbers a register.
TEST(PortableLayoutTest, FragmentsOfAAreThoseOfTheInstruction) {
  for (uint32_t mma = 0; mma < kMmasPerStep; ++mma) {
    const auto address = [&](uint32_t lane) { return LaneOffsetA(lane) ^ (mma * kMmaKBytes); };
    for (uint32_t lane = 0; lane < 32; ++lane) {
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t row = lane / 4 + i % 2 * 8;
        const uint32_t k = mma * kMmaK + lane % 4 * 2 + i / 2 * 8;
        EXPECT_EQ(LoadedByte(address, lane, i), ChunkOffset(row, k / 8) + k % 8 * 2);
      }
    }
  }
}

// B: b0, b1 at k 2q of column g; b2, b3 at k + 8; registers 2 and 3 are those of
// the fragment 8 columns on.
TEST(PortableLayoutTest, FragmentsOfBAreThoseOfTheInstruction) {
  for (uint32_t mma = 0; mma < kMmasPerStep; ++mma) {
    const auto address = [&](uint32_t lane) { return LaneOffsetB(lane) ^ (mma * kMmaKBytes); };
    for (uint32_t lane = 0; lane < 32; ++lane) {
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t column = lane / 4 + i / 2 * 8;
        const uint32_t k = mma * kMmaK + lane % 4 * 2 + i % 2 * 8;
        EXPECT_EQ(LoadedByte(address, lane, i), ChunkOffset(column, k / 8) + k % 8 * 2);
      }
    }
  }
}

TEST(PortableLayoutTest, MatricesAndWritesTouchEachBankOnce) {
  for (uint32_t mma = 0; mma < kMmasPerStep; ++mma) {
    for (uint32_t matrix = 0; matrix < 4; ++matrix) {
      std::vector<uint32_t> a;
      std::vector<uint32_t> b;
      for (uint32_t row = 0; row < 8; ++row) {
        a.push_back(LaneOffsetA(8 * matrix + row) ^ (mma * kMmaKBytes));
        b.push_back(LaneOffsetB(8 * matrix + row) ^ (mma * kMmaKBytes));
      }
      EXPECT_EQ(BankConflicts(a, kChunkBytes), 1);
      EXPECT_EQ(BankConflicts(b, kChunkBytes), 1);
    }
  }
  // 16-byte stores go a quarter warp at a time; thread 2 r + h writes half h of row r.
  for (uint32_t first = 0; first < kPortableThreads; first += 8) {
    for (uint32_t chunk = 0; chunk < 4; ++chunk) {
      std::vector<uint32_t> stores;
      for (uint32_t thread = first; thread < first + 8; ++thread) {
        stores.push_back(ChunkOffset(thread / 2, thread % 2 * 4) ^ (chunk * kChunkBytes));
        EXPECT_EQ(stores.back(), ChunkOffset(thread / 2, thread % 2 * 4 + chunk));
      }
      EXPECT_EQ(BankConflicts(stores, kChunkBytes), 1);
    }
  }
}

TEST(PortableLayoutTest, SumsOfFragmentsFillTheTileOnceWithoutConflicts) {
  std::vector<int> seen(kPortableTileRows * kPortableTileColumns);
  for (uint32_t warp = 0; warp < kWarps; ++warp) {
    for (uint32_t f = 0; f < kRowFragments; ++f) {
      for (uint32_t j = 0; j < kColumnFragments; ++j) {
        for (uint32_t i = 0; i < 4; ++i) {
          std::vector<uint32_t> stores;
          for (uint32_t lane = 0; lane < 32; ++lane) {
            const uint32_t row =
                (warp % kWarpsAlongRows + f * kWarpsAlongRows) * kMmaRows + lane / 4 + i / 2 * 8;
            const uint32_t column =
                warp / kWarpsAlongRows * kWarpColumns + j * kMmaColumns + lane % 4 * 2 + i % 2;
            stores.push_back(FragmentSum(LaneSumOffset(warp, lane), f, j, i));
            EXPECT_EQ(stores.back(), SumOffset(row, column));
            ++seen[row * kPortableTileColumns + column];
          }
          EXPECT_EQ(BankConflicts(stores, 4), 1);
        }
      }
    }
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<int64_t>(seen.size()));
}

TEST(PortableLayoutTest, SumsAreReadWithoutConflictsAlongRowsAndColumns) {
  for (uint32_t line = 0; line < 128; ++line) {
    for (uint32_t first = 0; first < 128; first += 32) {
      std::vector<uint32_t> row;
      std::vector<uint32_t> column;
      for (uint32_t at = first; at < first + 32; ++at) {
        row.push_back(SumOffset(line, at));
        column.push_back(SumOffset(at, line));
      }
      EXPECT_EQ(BankConflicts(row, 4), 1);
      EXPECT_EQ(BankConflicts(column, 4), 1);
    }
  }
}

TEST(PortableLayoutTest, FragmentsOfBothWarpsCoverTheRowsAndNoMore) {
  for (int rows = 0; rows <= kPortableTileRows; ++rows) {
    const int fragments = (rows + kMmaRows - 1) / kMmaRows;
    for (int warp_row = 0; warp_row < kWarpsAlongRows; ++warp_row) {
      int expected = 0;
      for (int f = warp_row; f < fragments; f += kWarpsAlongRows) ++expected;
      EXPECT_EQ(RowFragmentsOf(warp_row, rows), expected) << rows;
    }
  }
}

TEST(PortableLayoutTest, ScalesOfEveryStepAreThoseOfTheLayout) {
  for (const ScaleLayout layout : {ScaleLayout::kLinear, ScaleLayout::kBlocked}) {
    for (const int64_t k : {32, 64, 96, 7168}) {
      for (const int64_t row : {0, 1, 31, 32, 127, 128, 300}) {
        for (int half = 0; half < 2; ++half) {
          const int32_t steps = StepsOfHalf(static_cast<int32_t>(k), half);
          EXPECT_EQ(steps, (k / 32 + 1 - half) / 2);
          for (int64_t step = 0; step < steps; ++step) {
            const int64_t at = FirstScales(layout, row, half, k) + step * ScaleStep(layout);
            const int64_t block = (step * kStepK + half * kThreadCodes) / kScaleBlock;
            EXPECT_LT(block + 1, k / kScaleBlock);
            EXPECT_EQ(at, ScaleOffset(layout, row, block, k));
            EXPECT_EQ(at + 1, ScaleOffset(layout, row, block + 1, k));
            EXPECT_EQ(at % 2, 0);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tetrad::cuda
