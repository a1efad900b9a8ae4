// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The events of a world that concern weights.
#include <algorithm>
#include <charconv>

#include "engine/simulation/world.h"

namespace tetrad::simulation {

absl::StatusCode World::ResolveInModel(const std::string& reference, Version* version) const {
  const size_t at = reference.find('@');
  const std::string name = reference.substr(0, at);
  int64_t number = 0;
  if (at != std::string::npos) {
    std::from_chars(reference.data() + at + 1, reference.data() + reference.size(), number);
  }
  const auto uploading = [&](int64_t wanted) {
    return std::any_of(uploads_.begin(), uploads_.end(), [&](const Upload& upload) {
      return upload.name == name && (wanted == 0 || upload.version.number == wanted);
    });
  };
  const auto found = weights_.find(name);
  if (found == weights_.end()) {
    return uploading(0) ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kNotFound;
  }
  if (number != 0 && number != found->second.number) {
    return uploading(number) ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kNotFound;
  }
  *version = found->second;
  return absl::StatusCode::kOk;
}

bool World::WeightsInUse(const std::string& reference) const {
  return std::any_of(requests_.begin(), requests_.end(), [&](const auto& request) {
    return request->pending() && request->weights == reference;
  });
}

void World::BeginUpload() {
  const size_t index = static_cast<size_t>(random_.Below(std::size(kNames)));
  Upload upload{kNames[index], {}};
  // Those of the last name may be of any shapes; the others keep theirs.
  upload.version.family =
      index < catalogue_.families.size() ? index : static_cast<size_t>(random_.Below(3));
  const Family& family = catalogue_.families[upload.version.family];
  upload.version.content = static_cast<size_t>(random_.Below(std::ssize(family.contents)));
  const WeightsContent& content = family.contents[upload.version.content];
  const int64_t strikes = strikes_;
  const bool full = static_cast<int64_t>(weights_.size() + uploads_.size()) >=
                    engine_->options().weights.max_versions;
  const auto version = engine_->weights().Begin({.name = upload.name,
                                                 .groups = family.groups,
                                                 .scale_layout = family.scale_layout,
                                                 .alpha = content.alpha});
  const absl::StatusCode got = version.status().code();
  trace_.Add(now_, "begin upload", index, upload.version.family, upload.version.content, got);
  if (!version.ok()) {
    coverage_.Count(Seen::kRegisterRefused);
    return Promise(
        got == absl::StatusCode::kResourceExhausted
            ? full || profile_ != Profile::kCalm
            : (got == absl::StatusCode::kUnavailable && lossy()) ||
                  (got == absl::StatusCode::kInternal && (strikes_ > strikes || device_->lost())),
        "an upload is refused for a reason", static_cast<int64_t>(got));
  }
  Promise(!full, "versions are held up to max_versions");
  Promise(!lost_, "a lost device gives no memory to weights");
  upload.version.number = *version;
  uploads_.push_back(std::move(upload));
}

void World::FinishUpload() {
  if (uploads_.empty()) return;
  FinishUpload(static_cast<size_t>(random_.Below(std::ssize(uploads_))));
}

void World::FinishUpload(size_t index) {
  const Upload upload = uploads_[index];
  const auto& [number, family_index, content_index] = upload.version;
  const WeightsContent& content = catalogue_.families[family_index].contents[content_index];
  WeightsRegistry& weights = engine_->weights();
  const int64_t strikes = strikes_;
  absl::Status status;
  const size_t half = content.codes.size() / 2 / 16 * 16;
  for (const auto& [operand, offset, data] :
       {std::tuple(WeightsOperand::kCodes, half, std::span(content.codes).subspan(half)),
        std::tuple(WeightsOperand::kScales, size_t{0}, std::span(content.scales)),
        std::tuple(WeightsOperand::kCodes, size_t{0}, std::span(content.codes).first(half))}) {
    if (!status.ok()) break;
    status = weights.Write(upload.name, number, operand, static_cast<int64_t>(offset), data);
  }
  if (status.ok()) status = weights.Seal(upload.name, number).status();
  const absl::StatusCode got = status.code();
  trace_.Add(now_, "finish upload", number, got);
  // Others may have dropped it meanwhile.
  const auto at = std::find_if(uploads_.begin(), uploads_.end(),
                               [&](const Upload& u) { return u.version.number == number; });
  if (at == uploads_.end()) {
    return Promise(!status.ok(), "what was dropped is not sealed", static_cast<int64_t>(got));
  }
  uploads_.erase(at);
  const auto sealed = weights_.find(upload.name);
  const bool other = sealed != weights_.end() && sealed->second.family != family_index;
  if (!status.ok()) {
    Promise((other && got == absl::StatusCode::kFailedPrecondition) ||
                (got == absl::StatusCode::kInternal && (strikes_ > strikes || device_->lost())),
            "an upload fails for a reason", static_cast<int64_t>(got));
    weights.Abandon(upload.name, number);
    return;
  }
  Promise(!other, "a replacement has the shapes of what it replaces");
  if (sealed == weights_.end()) {
    coverage_.Count(Seen::kRegistered);
  } else {
    coverage_.Count(WeightsInUse(absl::StrCat(upload.name, "@", sealed->second.number))
                        ? Seen::kReplacedInUse
                        : Seen::kReplaced);
  }
  weights_[upload.name] = upload.version;
}

void World::Register() {
  const size_t before = uploads_.size();
  BeginUpload();
  if (uploads_.size() > before) FinishUpload(before);
}

void World::Drop() {
  std::string name = kNames[random_.Below(std::size(kNames))];
  if (const auto at = weights_.find(name); at != weights_.end() && random_.OneIn(3)) {
    absl::StrAppend(&name, "@", std::max<int64_t>(1, at->second.number - random_.Below(2)));
  }
  Drop(name);
}

void World::Drop(const std::string& reference) {
  const size_t at = reference.find('@');
  const std::string name = reference.substr(0, at);
  const auto meant = [&](int64_t number) {
    return at == std::string::npos || reference == absl::StrCat(name, "@", number);
  };
  int64_t want = 0;
  if (const auto sealed = weights_.find(name);
      sealed != weights_.end() && meant(sealed->second.number)) {
    coverage_.Count(WeightsInUse(absl::StrCat(name, "@", sealed->second.number))
                        ? Seen::kDroppedInUse
                        : Seen::kDropped);
    weights_.erase(sealed);
    ++want;
  }
  const int64_t unsealed = static_cast<int64_t>(std::erase_if(uploads_, [&](const Upload& upload) {
    return upload.name == name && meant(upload.version.number);
  }));
  if (unsealed > 0) coverage_.Count(Seen::kUnsealedDropped);
  want += unsealed;
  const auto dropped = engine_->weights().Drop(reference);
  trace_.Add(now_, "drop weights", name[0], want, dropped.status().code());
  Promise(want > 0 ? dropped.ok() && *dropped == want : absl::IsNotFound(dropped.status()),
          "what a name leads to is dropped", want);
}

}  // namespace tetrad::simulation
