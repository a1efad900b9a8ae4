// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Named shapes that tests and benchmarks share: what the numbers are quoted for.
//
//   S1..S4   large ragged groups, the benchmark shapes
//   T1..T10  small ragged groups, N and K differing too
//   D1..D3   decoding: few rows a group, skewed or empty groups
//   P1       prefill
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/problem.h"

namespace tetrad {

struct NamedShape {
  std::string_view name;
  std::span<const GroupShape> groups;
};

// Groups that share N and K.
template <class... Rows>
constexpr std::array<GroupShape, sizeof...(Rows)> GroupsOf(int32_t n, int32_t k, Rows... m) {
  return {GroupShape{m, n, k}...};
}

inline constexpr auto kShapeS1 = GroupsOf(4096, 7168, 80, 176, 128, 72, 64, 248, 96, 160);
inline constexpr auto kShapeS2 = GroupsOf(7168, 2048, 40, 76, 168, 72, 164, 148, 196, 160);
inline constexpr auto kShapeS3 = GroupsOf(3072, 4096, 192, 320);
inline constexpr auto kShapeS4 = GroupsOf(4096, 1536, 128, 384);

inline constexpr GroupShape kShapeT1[] = {{96, 128, 256}, {128, 256, 512}};
inline constexpr GroupShape kShapeT2[] = {{256, 512, 256}, {72, 384, 256}};
inline constexpr GroupShape kShapeT3[] = {{128, 128, 512}, {128, 256, 256}};
inline constexpr GroupShape kShapeT4[] = {{80, 384, 256}, {128, 256, 512}, {256, 128, 256}};
inline constexpr GroupShape kShapeT5[] = {{64, 128, 512}, {72, 384, 512}, {96, 512, 256}};
inline constexpr GroupShape kShapeT6[] = {{64, 768, 256}, {256, 128, 512}, {128, 256, 256}};
inline constexpr GroupShape kShapeT7[] = {{128, 256, 768}, {128, 512, 256}, {64, 512, 768}};
inline constexpr GroupShape kShapeT8[] = {
    {128, 128, 512}, {128, 128, 256}, {128, 128, 512}, {128, 128, 256}};
inline constexpr GroupShape kShapeT9[] = {
    {40, 512, 256}, {56, 384, 256}, {384, 256, 256}, {512, 128, 256}};
inline constexpr GroupShape kShapeT10[] = {
    {512, 256, 512}, {384, 256, 768}, {256, 256, 512}, {128, 256, 768}};

inline constexpr auto kShapeD1 = GroupsOf(4096, 7168, 8, 8, 8, 8, 8, 8, 8, 8);
// 256 tokens, top 8 of 64 with skew: 2048 rows, 20 groups empty.
inline constexpr auto kShapeD2 =
    GroupsOf(1536, 4096, 1, 177, 39, 4, 3, 2, 1, 1, 256, 2, 118, 0, 0, 0, 24, 0, 256, 2, 0, 0, 0, 1,
             16, 4, 0, 13, 0, 0, 9, 0, 2, 69, 2, 7, 5, 52, 15, 2, 140, 0, 0, 5, 0, 1, 0, 1, 4, 0,
             220, 0, 41, 256, 2, 247, 0, 20, 0, 11, 7, 2, 0, 3, 4, 1);
// 32 tokens, top 8 of 128, uniform without replacement: 256 rows.
inline constexpr auto kShapeD3 =
    GroupsOf(768, 2048, 0, 3, 2, 4, 1, 1, 2, 0, 1, 3, 2, 3, 3, 0, 6, 1, 1, 0, 2, 1, 2, 2, 2, 1, 2,
             4, 2, 2, 1, 5, 4, 2, 1, 1, 1, 0, 1, 1, 2, 3, 1, 3, 3, 4, 4, 1, 3, 3, 2, 4, 3, 3, 1, 1,
             3, 3, 1, 4, 1, 4, 2, 0, 3, 2, 0, 2, 0, 2, 3, 1, 1, 3, 0, 2, 2, 2, 1, 3, 1, 7, 1, 0, 4,
             4, 1, 3, 0, 3, 2, 2, 4, 4, 1, 4, 1, 2, 2, 2, 1, 0, 1, 1, 2, 2, 0, 1, 0, 1, 1, 4, 3, 3,
             2, 2, 4, 2, 1, 4, 4, 0, 3, 3, 0, 2, 1, 3, 1, 0);
inline constexpr auto kShapeP1 =
    GroupsOf(4096, 7168, 2048, 2048, 2048, 2048, 2048, 2048, 2048, 2048);

inline constexpr NamedShape kBenchmarkShapes[] = {
    {"S1", kShapeS1}, {"S2", kShapeS2}, {"S3", kShapeS3}, {"S4", kShapeS4}};
inline constexpr NamedShape kTestShapes[] = {
    {"T1", kShapeT1}, {"T2", kShapeT2}, {"T3", kShapeT3}, {"T4", kShapeT4}, {"T5", kShapeT5},
    {"T6", kShapeT6}, {"T7", kShapeT7}, {"T8", kShapeT8}, {"T9", kShapeT9}, {"T10", kShapeT10}};
inline constexpr NamedShape kDecodeShapes[] = {
    {"D1", kShapeD1}, {"D2", kShapeD2}, {"D3", kShapeD3}};
inline constexpr NamedShape kPrefillShapes[] = {{"P1", kShapeP1}};

}  // namespace tetrad
