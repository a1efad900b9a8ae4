// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Early return on absl::Status, and a check for invariants we own (never for
// input). The packaged Abseil has neither.
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

#define TETRAD_CHECK(condition)                                                          \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)
