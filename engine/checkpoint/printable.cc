// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/printable.h"

#include <array>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace tetrad {
namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: not well-formed
};

// One character by the table of well-formed byte sequences of the Unicode standard (no overlong
// forms, no surrogates, nothing past U+10FFFF).
Character Decode(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xC2 || lead > 0xF4) return {};
  const size_t bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (text.size() < bytes) return {};
  uint32_t code = lead & (0xFF >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3F);
  }
  constexpr std::array<uint32_t, 5> kSmallest = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < kSmallest[bytes] || surrogate || code > 0x10FFFF) return {};
  return {code, bytes};
}

bool IsPlain(uint32_t code) {
  if (code < 0x20 || code == 0x7F || code == '\\') return false;
  if (code < 0x7F) return true;
  const bool c1_control = code < 0xA0;
  const bool separator_or_direction = (code >= 0x200B && code <= 0x200F) ||
                                      (code >= 0x2028 && code <= 0x202E) ||
                                      (code >= 0x2060 && code <= 0x206F) || code == 0xFEFF;
  const bool noncharacter = (code & 0xFFFE) == 0xFFFE || (code >= 0xFDD0 && code <= 0xFDEF);
  return !c1_control && !separator_or_direction && !noncharacter;
}

}  // namespace

std::string Printable(std::string_view text, size_t limit) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const Character c = Decode(text.substr(at));
    const bool plain = c.bytes != 0 && IsPlain(c.code);
    const size_t consumed = c.bytes == 0 ? 1 : c.bytes;
    if (out.size() + (plain ? consumed : 4 * consumed) > limit) {
      absl::StrAppend(&out, "...(", text.size(), " bytes)");
      return out;
    }
    for (const char ch : text.substr(at, consumed)) {
      if (plain) {
        out += ch;
      } else {
        const auto value = static_cast<uint8_t>(ch);
        out += {'\\', 'x', kHex[value >> 4], kHex[value & 15]};
      }
    }
    at += consumed;
  }
  return out;
}

size_t FindInvalidUtf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (static_cast<uint8_t>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Character c = Decode(text.substr(at));
    if (c.bytes == 0) return at;
    at += c.bytes;
  }
  return std::string_view::npos;
}

}  // namespace tetrad
