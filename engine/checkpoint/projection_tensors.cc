// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/projection_tensors.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/checkpoint/printable.h"
#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

constexpr std::string_view kExpertsFolder = ".experts.";

// How a producer spells the tensors of a layer: the layer's name plus one suffix for each role.
struct Spelling {
  Dialect dialect;
  std::array<std::string_view, kProjectionRoles> suffixes;
};

constexpr std::array kSpellings = {
    Spelling{Dialect::kModelOpt, {".weight", ".weight_scale", ".weight_scale_2", ".input_scale"}},
    // A fused parameter is itself the weight, and its scales are named after it.
    Spelling{Dialect::kModelOpt, {"", "_weight_scale", "_weight_scale_2", "_input_scale"}},
    Spelling{Dialect::kCompressedTensors,
             {".weight_packed", ".weight_scale", ".weight_global_scale", ".input_global_scale"}},
};

constexpr const Spelling& kFusedSpelling = kSpellings[1];

// Part of a layer, but of another term of the sum than the product.
constexpr std::array<std::string_view, 2> kBiases = {".bias", "_bias"};

std::string Quoted(std::string_view name) { return absl::StrCat("`", Printable(name), "`"); }

bool IsKnown(std::string_view suffix) {
  return std::ranges::any_of(kSpellings, [&](const Spelling& spelling) {
    return std::ranges::find(spelling.suffixes, suffix) != spelling.suffixes.end();
  });
}

struct Pattern {
  std::string_view before;  // the placeholder, or all of it
  std::string_view after;
  bool has_placeholder = false;

  std::string Expand(uint64_t expert) const {
    std::string name(before);
    if (has_placeholder) absl::StrAppend(&name, expert);
    return name.append(after);
  }
};

absl::StatusOr<Pattern> ParsePattern(std::string_view text) {
  const size_t at = text.find(kExpertPlaceholder);
  if (text.empty()) return FieldError({"pattern"}, Reason::kFieldMissing, "pattern is empty");
  if (at == std::string_view::npos) return Pattern{text, {}, false};
  const std::string_view after = text.substr(at + kExpertPlaceholder.size());
  if (after.find(kExpertPlaceholder) != std::string_view::npos) {
    return FieldError({"pattern", Quoted(text), "{expert} once"}, Reason::kFieldMalformed,
                      absl::StrCat("pattern ", Quoted(text), ": {expert} appears twice"));
  }
  return Pattern{text.substr(0, at), after, true};
}

// A tensor of the layer that a pattern stands for.
struct Match {
  uint64_t expert;
  std::string_view suffix;
  CheckpointTensor tensor;
};

// Whether `tensor` belongs to the pattern's layers, and as what. An expert number must be written
// the one canonical way, or two names could mean one expert.
absl::StatusOr<std::optional<Match>> MatchName(const Pattern& pattern,
                                               const CheckpointTensor& tensor) {
  std::string_view rest = tensor.info.name;
  if (!rest.starts_with(pattern.before)) return std::nullopt;
  rest.remove_prefix(pattern.before.size());
  uint64_t expert = 0;
  std::string_view digits;
  bool canonical = true;
  if (pattern.has_placeholder) {
    digits = rest.substr(0, std::min(rest.find_first_not_of("0123456789"), rest.size()));
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), expert);
    canonical = parsed.ec == std::errc() && (digits.size() == 1 || !digits.starts_with('0'));
    rest.remove_prefix(digits.size());
    if (digits.empty() || !rest.starts_with(pattern.after)) return std::nullopt;
    rest.remove_prefix(pattern.after.size());
  }
  // Whether a sibling such as `up_bias` belongs to `up` depends on how the weight is spelled.
  const bool child = rest.starts_with('.') && rest.find('.', 1) == std::string_view::npos;
  const bool sibling =
      !pattern.has_placeholder && rest.starts_with('_') && rest.find('.') == std::string_view::npos;
  if (!child && !sibling && !IsKnown(rest)) return std::nullopt;
  if (!canonical) {
    return ReasonError(
        Reason::kIllegalCheckpoint,
        absl::StrCat("tensor ", Quoted(tensor.info.name), ": bad expert number ", Quoted(digits)));
  }
  return Match{expert, rest, tensor};
}

// The dialects whose own suffixes (shared ones say nothing) appear among the matches.
absl::StatusOr<Dialect> DialectOf(const std::vector<Match>& matches) {
  const Match* evidence[2] = {nullptr, nullptr};
  for (const Match& match : matches) {
    bool modelopt = false;
    bool compressed = false;
    for (const Spelling& spelling : kSpellings) {
      const bool used =
          std::ranges::find(spelling.suffixes, match.suffix) != spelling.suffixes.end();
      (spelling.dialect == Dialect::kModelOpt ? modelopt : compressed) |= used;
    }
    if (modelopt && !compressed) evidence[0] = &match;
    if (compressed && !modelopt) evidence[1] = &match;
  }
  if (evidence[0] != nullptr && evidence[1] != nullptr) {
    return ReasonError(
        Reason::kIllegalCheckpoint,
        absl::StrCat("names of both dialects: ", Quoted(evidence[0]->tensor.info.name),
                     " (modelopt) and ", Quoted(evidence[1]->tensor.info.name),
                     " (compressed-tensors)"));
  }
  if (evidence[0] != nullptr) return Dialect::kModelOpt;
  if (evidence[1] != nullptr) return Dialect::kCompressedTensors;
  return Dialect::kAuto;
}

absl::StatusOr<Dialect> Decide(const Checkpoint& checkpoint, const std::vector<Match>& matches,
                               Dialect wanted) {
  TETRAD_ASSIGN_OR_RETURN(const Dialect found, DialectOf(matches));
  const Dialect declared = checkpoint.declared_dialect();
  const auto text = [](Dialect dialect) {
    const std::string_view name = DialectName(dialect);
    return absl::string_view(name.data(), name.size());
  };
  if (found == Dialect::kAuto) {
    return ReasonError(Reason::kIllegalCheckpoint,
                       absl::StrCat("tensor ", Quoted(matches.front().tensor.info.name),
                                    " has no global scale beside it"));
  }
  if (wanted != Dialect::kAuto && wanted != found) {
    return FieldError(
        {"dialect", std::string(text(wanted)), std::string(text(found))}, Reason::kFieldConflict,
        absl::StrCat("dialect ", text(wanted), " was asked for, but the tensors are named as ",
                     text(found), " names them"));
  }
  if (declared != Dialect::kAuto && declared != found) {
    return ReasonError(Reason::kIllegalCheckpoint,
                       absl::StrCat(checkpoint.declared_by(), " declares ", text(declared),
                                    ", but the tensors are named as ", text(found), " names them"));
  }
  return found;
}

// The spelling of the dialect that most of the matches use.
const Spelling& SpellingOf(Dialect dialect, const std::vector<Match>& matches) {
  const auto uses = [&](const Spelling& spelling) {
    return spelling.dialect != dialect
               ? int64_t{-1}
               : std::ranges::count_if(matches, [&](const Match& match) {
                   return std::ranges::find(spelling.suffixes, match.suffix) !=
                          spelling.suffixes.end();
                 });
  };
  return *std::ranges::max_element(kSpellings, {}, uses);
}

absl::Status Assign(const Spelling& spelling, const Match& match, ProjectionTensors& out) {
  const auto role = std::ranges::find(spelling.suffixes, match.suffix);
  if (role != spelling.suffixes.end()) {
    out.experts[match.expert].by_role[static_cast<size_t>(role - spelling.suffixes.begin())] =
        match.tensor;
    return absl::OkStatus();
  }
  if (match.suffix.starts_with('_') && &spelling != &kFusedSpelling) return absl::OkStatus();
  if (std::ranges::find(kBiases, match.suffix) == kBiases.end()) {
    return ReasonError(
        Reason::kIllegalCheckpoint,
        absl::StrCat(
            "tensor ", Quoted(match.tensor.info.name),
            " belongs to the projection, but what it does to the result is not known here"));
  }
  if (out.notes.empty()) {
    out.notes.push_back(
        absl::StrCat("biases are not loaded: ", Quoted(match.tensor.info.name), " and its like"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ProjectionTensors> FindProjection(const Checkpoint& checkpoint,
                                                 std::string_view text, Dialect wanted) {
  TETRAD_ASSIGN_OR_RETURN(const Pattern pattern, ParsePattern(text));
  std::vector<Match> matches;
  TETRAD_RETURN_IF_ERROR(checkpoint.ForEach([&](const CheckpointTensor& tensor) -> absl::Status {
    TETRAD_ASSIGN_OR_RETURN(const std::optional<Match> match, MatchName(pattern, tensor));
    if (match) matches.push_back(*match);
    return absl::OkStatus();
  }));
  if (std::ranges::none_of(matches, [](const Match& m) { return IsKnown(m.suffix); })) {
    return FieldError({"pattern", Quoted(text)}, Reason::kFileNotFound,
                      absl::StrCat("pattern ", Quoted(text), " matches no tensor"));
  }
  // By expert before anything is sized by its number: a number as large as 10^18 is legal text.
  std::ranges::sort(matches, {}, &Match::expert);
  uint64_t next = 0;
  for (const Match& match : matches) {
    if (match.expert > next) {
      return ReasonError(
          Reason::kIllegalCheckpoint,
          absl::StrCat("pattern ", Quoted(text), ": expert ", next, " is missing, but there is ",
                       Quoted(match.tensor.info.name)));
    }
    next = match.expert + 1;
  }

  ProjectionTensors found;
  TETRAD_ASSIGN_OR_RETURN(found.dialect, Decide(checkpoint, matches, wanted));
  found.has_placeholder = pattern.has_placeholder;
  found.experts.resize(next);
  const Spelling& spelling = SpellingOf(found.dialect, matches);
  for (const Match& match : matches) TETRAD_RETURN_IF_ERROR(Assign(spelling, match, found));
  for (uint64_t expert = 0; expert < next; ++expert) {
    for (const ProjectionRole role :
         {ProjectionRole::kCodes, ProjectionRole::kScales, ProjectionRole::kGlobalScale}) {
      if (found.experts[expert].has(role)) continue;
      const std::string_view suffix = spelling.suffixes[static_cast<size_t>(role)];
      return ReasonError(
          Reason::kIllegalCheckpoint,
          absl::StrCat("tensor ", Quoted(pattern.Expand(expert).append(suffix)), " is missing"));
    }
  }
  return found;
}

std::vector<ProjectionName> ListProjections(const Checkpoint& checkpoint) {
  constexpr std::string_view kEnding = "weight_scale";
  std::map<std::string, int64_t> layers;
  const absl::Status visited = checkpoint.ForEach([&](const CheckpointTensor& tensor) {
    std::string_view name = tensor.info.name;
    // The separator is a dot, or the underscore of a fused parameter's spelling.
    if (!name.ends_with(kEnding) || name.size() <= kEnding.size() + 1) return absl::OkStatus();
    name.remove_suffix(kEnding.size() + 1);
    std::string pattern(name);
    if (const size_t folder = name.find(kExpertsFolder); folder != std::string_view::npos) {
      const size_t begin = folder + kExpertsFolder.size();
      const size_t end = std::min(name.find_first_not_of("0123456789", begin), name.size());
      if (end > begin) pattern.replace(begin, end - begin, kExpertPlaceholder);
    }
    ++layers[pattern];
    return absl::OkStatus();
  });
  TETRAD_CHECK(visited.ok());
  std::vector<ProjectionName> names;
  for (auto& [pattern, count] : layers) names.push_back({pattern, count});
  return names;
}

}  // namespace tetrad
