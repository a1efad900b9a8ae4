// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Printable: text of unknown origin made fit for an error message.
//
// Tensor names, paths and JSON come from files that others wrote. A gRPC status must be UTF-8 and
// small, a log line must stay one line, and neither may let a file steer a terminal. Pure
// functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tetrad {

inline constexpr size_t kPrintableLimit = 160;

// `text` as one line of printable UTF-8 of at most `limit` bytes plus a note of the full length.
// Control and direction characters, line separators, the backslash and every byte that is not UTF-8
// become \xNN, so two different short texts never print alike.
std::string Printable(std::string_view text, size_t limit = kPrintableLimit);

// The position of the first byte that is not well-formed UTF-8, or npos.
size_t FindInvalidUtf8(std::string_view text);

}  // namespace tetrad
