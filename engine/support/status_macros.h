// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Early return on absl::Status, and a check for invariants we own (never for
// input). The packaged Abseil has neither.
//
// A failed check prints and aborts. Where the program defines NoteFailedCheck()
// (the daemon does, for its crash report), that is told the text first; a weak
// declaration, because whoever reports is above the engine and a registered
// function would be a global.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define TETRAD_RETURN_IF_ERROR(expression)                                \
  do {                                                                    \
    if (absl::Status tetrad_status = (expression); !tetrad_status.ok()) { \
      return tetrad_status;                                               \
    }                                                                     \
  } while (false)

#define TETRAD_CONCAT_INNER(a, b) a##b
#define TETRAD_CONCAT(a, b) TETRAD_CONCAT_INNER(a, b)

#define TETRAD_ASSIGN_OR_RETURN(declaration, expression) \
  TETRAD_ASSIGN_OR_RETURN_IMPL(TETRAD_CONCAT(tetrad_or_, __LINE__), declaration, expression)
#define TETRAD_ASSIGN_OR_RETURN_IMPL(temporary, declaration, expression) \
  auto temporary = (expression);                                         \
  if (!temporary.ok()) return std::move(temporary).status();             \
  declaration = std::move(temporary).value()

namespace tetrad {

// `text` lives as long as the program.
[[gnu::weak]] void NoteFailedCheck(const char* text);

[[noreturn]] inline void CheckFailed(const char* text) {
  std::fputs(text, stderr);
  if (NoteFailedCheck != nullptr) NoteFailedCheck(text);
  std::abort();
}

}  // namespace tetrad

#define TETRAD_TEXT_INNER(a) #a
#define TETRAD_TEXT(a) TETRAD_TEXT_INNER(a)

#define TETRAD_CHECK(condition)                                                              \
  do {                                                                                       \
    if (!(condition)) {                                                                      \
      ::tetrad::CheckFailed(__FILE__ ":" TETRAD_TEXT(__LINE__) ": check failed: " #condition \
                                                               "\n");                        \
    }                                                                                        \
  } while (false)
