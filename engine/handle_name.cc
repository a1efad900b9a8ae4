// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/handle_name.h"

#include <cerrno>
#include <charconv>

#include <sys/random.h>

#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

// Exactly 16 lower-case hexadecimal digits at the start of `text`, which then
// begins after them.
bool TakeHex(std::string_view& text, uint64_t& value) {
  constexpr size_t kDigits = 16;
  if (text.size() < kDigits) return false;
  const char* const end = text.data() + kDigits;
  for (const char c : text.substr(0, kDigits)) {
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
  }
  const auto [stop, error] = std::from_chars(text.data(), end, value, 16);
  if (error != std::errc() || stop != end) return false;
  text.remove_prefix(kDigits);
  return true;
}

bool TakeDash(std::string_view& text) {
  if (!text.starts_with('-')) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

HandleNames::HandleNames(std::string_view kind, uint64_t generation, std::string_view remedy)
    : kind_(kind),
      prefix_(absl::StrCat(kind_, "-", absl::Hex(generation, absl::kZeroPad16), "-")),
      remedy_(remedy) {}

std::string HandleNames::Make(Parts parts) const {
  return absl::StrCat(prefix_, absl::Hex(parts.number, absl::kZeroPad16), "-",
                      absl::Hex(parts.secret, absl::kZeroPad16));
}

absl::StatusOr<HandleNames::Parts> HandleNames::Parse(std::string_view text) const {
  std::string_view rest = text;
  uint64_t generation = 0;
  Parts parts;
  if (rest.starts_with(kind_)) {
    rest.remove_prefix(kind_.size());
    if (TakeDash(rest) && TakeHex(rest, generation) && TakeDash(rest) &&
        TakeHex(rest, parts.number) && TakeDash(rest) && TakeHex(rest, parts.secret) &&
        rest.empty()) {
      if (!text.starts_with(prefix_)) return Stale();
      return parts;
    }
  }
  return FieldError({kind_, std::string(text.substr(0, 200)), "a name this daemon gave out"},
                    Reason::kFieldMalformed,
                    absl::StrCat(kind_, ": not a name that this daemon gave out"));
}

absl::Status HandleNames::Stale() const {
  return FieldError({kind_}, Reason::kStaleHandle,
                    absl::StrCat(kind_, ": it has ended or is of an earlier daemon; ", remedy_));
}

absl::Status HandleNames::NotYours() const {
  return FieldError({kind_}, Reason::kNotYours,
                    absl::StrCat(kind_, ": it belongs to another client"));
}

uint64_t HandleNames::DrawSecret() {
  uint64_t secret = 0;
  ssize_t got;
  do {
    got = ::getrandom(&secret, sizeof(secret), 0);
  } while (got < 0 && errno == EINTR);
  TETRAD_CHECK(got == sizeof(secret));
  return secret;
}

}  // namespace tetrad
