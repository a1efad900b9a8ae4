// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/weights_spec.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

constexpr size_t kMaxNameBytes = 128;

bool IsNameCharacter(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '/' || c == '-';
}

absl::Status ValidateName(const char* field, std::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes ||
      !std::all_of(name.begin(), name.end(), IsNameCharacter)) {
    return FieldError(
        {field, std::string(name.substr(0, kMaxNameBytes)),
         "1 to 128 characters of A-Z a-z 0-9 . _ / -"},
        Reason::kFieldMalformed,
        absl::StrCat("name: must be 1 to 128 characters of A-Z a-z 0-9 . _ / - (no @), has ",
                     name.size()));
  }
  return absl::OkStatus();
}

absl::Status CheckFactors(absl::string_view field, const std::vector<float>& values,
                          size_t groups) {
  if (!values.empty() && values.size() != groups) {
    return FieldError({std::string(field), absl::StrCat(values.size(), " values"),
                       absl::StrCat(groups, " values")},
                      Reason::kSizeMismatch,
                      absl::StrCat(field, ": ", values.size(), " values for ", groups, " groups"));
  }
  GroupErrors errors;
  for (size_t g = 0; g < values.size(); ++g) {
    if (std::isfinite(values[g])) continue;
    errors.Add([&]() -> FieldViolation {
      return {absl::StrCat(field, "[", g, "]"), absl::StrCat(values[g]), "a finite number",
              static_cast<int64_t>(g)};
    });
  }
  return errors.status();
}

}  // namespace

absl::Status ValidateWeightsSpec(const WeightsSpec& spec) {
  TETRAD_RETURN_IF_ERROR(ValidateName("name", spec.name));
  if (spec.groups.empty()) {
    return FieldError({"groups", "", "at least 1 group"}, Reason::kFieldMissing,
                      "groups=0 must be at least 1");
  }
  if (static_cast<uint8_t>(spec.scale_layout) > 1) {
    return FieldError({"scale_layout", absl::StrCat(static_cast<int>(spec.scale_layout))},
                      Reason::kUnknownEnumValue, "scale_layout is not one of the known values");
  }
  // Sums stay far below 2^63: a group has at most 2^61 codes, so check as we go.
  constexpr int64_t kMaxBytes = int64_t{1} << 46;
  int64_t bytes = 0;
  GroupErrors errors;
  for (size_t g = 0; g < spec.groups.size(); ++g) {
    const auto [n, k] = spec.groups[g];
    const auto add = [&errors, g](const char* name, int32_t value, std::string limit) {
      errors.Add([&]() -> FieldViolation {
        return {absl::StrCat("groups[", g, "].", name), absl::StrCat(value), limit,
                static_cast<int64_t>(g)};
      });
    };
    if (n < 1) add("n", n, "at least 1");
    if (k < 1 || k % kKMultiple != 0) {
      add("k", k, absl::StrCat("a positive multiple of ", kKMultiple));
    }
    if (!errors.empty()) continue;
    // n * k < 2^62, but a single group beyond the limit must not be summed.
    const int64_t codes = CodeBytes(n, k);
    if (codes > kMaxBytes || (bytes += codes) > kMaxBytes) {
      return FieldError(
          {absl::StrCat("groups[", g, "]"), absl::StrCat("n=", n, " k=", k),
           absl::StrCat("at most ", kMaxBytes, " bytes in all"), static_cast<int64_t>(g)},
          Reason::kFieldOutOfRange,
          absl::StrCat("group ", g, ": weights exceed the limit of ", kMaxBytes, " bytes"));
    }
  }
  TETRAD_RETURN_IF_ERROR(errors.status());
  TETRAD_RETURN_IF_ERROR(CheckFactors("alpha", spec.alpha, spec.groups.size()));
  return CheckFactors("input_scale", spec.input_scale, spec.groups.size());
}

absl::StatusOr<WeightsReference> ParseWeightsReference(std::string_view text) {
  WeightsReference reference;
  const size_t at = text.find('@');
  reference.name = text.substr(0, at);
  TETRAD_RETURN_IF_ERROR(ValidateName("weights", reference.name));
  if (at != std::string_view::npos) {
    const std::string_view digits = text.substr(at + 1);
    int64_t version = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), version);
    if (error != std::errc() || end != digits.data() + digits.size() || version < 1) {
      return FieldError({"weights", std::string(text), "NAME@VERSION"}, Reason::kFieldMalformed,
                        "weights: the part after @ must be a positive version number");
    }
    reference.version = version;
  }
  return reference;
}

}  // namespace tetrad
