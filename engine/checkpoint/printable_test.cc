// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/printable.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

namespace tetrad {
namespace {

using namespace std::string_literals;

TEST(PrintableTest, OneLineOfUtf8WhateverComesIn) {
  const struct {
    std::string text;
    std::string printed;
  } cases[] = {
      {"", ""},
      {"model.layers.3.mlp", "model.layers.3.mlp"},
      {"a\nb\tc\0d\x7F"s, "a\\x0Ab\\x09c\\x00d\\x7F"},
      {"\xFF\xFE", "\\xFF\\xFE"},
      {"caf\xE9", "caf\\xE9"},                       // Latin-1
      {"caf\xC3\xA9", "caf\xC3\xA9"},                // UTF-8
      {"\xF0\x9F\xA6\x80", "\xF0\x9F\xA6\x80"},      // a 4-byte character
      {"\xC0\xAF", "\\xC0\\xAF"},                    // overlong
      {"\xED\xA0\x80", "\\xED\\xA0\\x80"},           // surrogate
      {"\xF4\x90\x80\x80", "\\xF4\\x90\\x80\\x80"},  // past U+10FFFF
      {"\xE2\x80\xAE", "\\xE2\\x80\\xAE"},           // right-to-left override
      {"\xE2\x80\xA8", "\\xE2\\x80\\xA8"},           // line separator
      {"\xC2\x9B", "\\xC2\\x9B"},                    // C1 control
      {"\xE2\x82", "\\xE2\\x82"},                    // cut off
      {"a\\xFF", "a\\x5CxFF"},                       // cannot be mistaken for the byte
  };
  for (const auto& c : cases) EXPECT_EQ(Printable(c.text), c.printed);
}

TEST(PrintableTest, LengthIsCappedAndTold) {
  const std::string text(100'000, 'x');
  EXPECT_EQ(Printable(text, 10), "xxxxxxxxxx...(100000 bytes)");
  EXPECT_LT(Printable(std::string(100'000, '\xFF')).size(), 200u);
  EXPECT_EQ(Printable(std::string(kPrintableLimit, 'x')).size(), kPrintableLimit);
  // A character is never cut in half.
  EXPECT_EQ(Printable("\xF0\x9F\xA6\x80\xF0\x9F\xA6\x80", 7), "\xF0\x9F\xA6\x80...(8 bytes)");
}

TEST(PrintableTest, EveryTwoByteTextPrintsAsPrintableUtf8) {
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      const std::string printed =
          Printable(std::string{static_cast<char>(a), static_cast<char>(b)});
      EXPECT_EQ(FindInvalidUtf8(printed), std::string::npos);
      EXPECT_TRUE(std::ranges::none_of(
          printed, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }));
    }
  }
}

TEST(FindInvalidUtf8Test, TellsWhere) {
  EXPECT_EQ(FindInvalidUtf8("plain"), std::string::npos);
  EXPECT_EQ(FindInvalidUtf8("caf\xC3\xA9"), std::string::npos);
  EXPECT_EQ(FindInvalidUtf8("ab\xFFxy"), 2u);
  EXPECT_EQ(FindInvalidUtf8("ab\xE2\x82"), 2u);
}

}  // namespace
}  // namespace tetrad
