// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/checkpoint.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "engine/checkpoint/printable.h"
#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

constexpr char kIndexName[] = "model.safetensors.index.json";
constexpr char kSingleName[] = "model.safetensors";
constexpr uint64_t kMaxIndexBytes = kMaxSafetensorsHeaderBytes;
constexpr uint64_t kMaxConfigBytes = 16 << 20;

std::string PathIn(std::string_view directory, std::string_view name) {
  std::string path(directory);
  if (!path.empty() && path.back() != '/') path += '/';
  return path.append(name);
}

// Names that share a complaint: the first few spelled out, all counted.
class NameList {
 public:
  void Add(std::string text) {
    if (shown_.size() < kShown) shown_.push_back(std::move(text));
    ++total_;
  }
  bool empty() const { return total_ == 0; }
  std::string Text() const {
    std::string text = absl::StrJoin(shown_, ", ");
    if (total_ > kShown) absl::StrAppend(&text, ", ... (", total_, " in all)");
    return text;
  }

 private:
  static constexpr size_t kShown = 5;
  std::vector<std::string> shown_;
  size_t total_ = 0;
};

std::string ShortQuoted(std::string_view name) {
  return absl::StrCat("`", Printable(name, 80), "`");
}

}  // namespace

absl::StatusOr<Checkpoint> Checkpoint::Open(const Root& root, std::string_view directory) {
  Checkpoint checkpoint;
  auto index_file = root.OpenFile(PathIn(directory, kIndexName));
  if (index_file.ok()) {
    TETRAD_ASSIGN_OR_RETURN(const std::string json, ReadWhole(*index_file, kMaxIndexBytes));
    auto index = ShardIndex::Parse(json);
    if (!index.ok()) {
      return WithPrefix(absl::StrCat(index_file->name(), ": "), index.status());
    }
    TETRAD_RETURN_IF_ERROR(checkpoint.OpenShards(root, directory, *index));
    TETRAD_RETURN_IF_ERROR(checkpoint.CheckIndex(*index));
    const bool single_is_shard = std::ranges::binary_search(index->shards(), kSingleName);
    const auto stray = root.OpenFile(PathIn(directory, kSingleName));
    if (!single_is_shard && !absl::IsNotFound(stray.status())) {
      checkpoint.notes_.push_back(absl::StrCat(
          "ignored ", Printable(PathIn(directory, kSingleName)), ": the index does not name it"));
    }
  } else if (absl::IsNotFound(index_file.status())) {
    auto single = root.OpenFile(PathIn(directory, kSingleName));
    if (absl::IsNotFound(single.status())) {
      return ReasonError(Reason::kFileNotFound,
                         absl::StrCat("folder ", ShortQuoted(directory), ": neither ", kIndexName,
                                      " nor ", kSingleName));
    }
    if (!single.ok()) return single.status();
    TETRAD_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(*std::move(single)));
    checkpoint.files_.push_back(std::move(file));
  } else {
    return index_file.status();
  }
  for (const char* name : {"config.json", "hf_quant_config.json"}) {
    TETRAD_RETURN_IF_ERROR(checkpoint.ReadDeclaration(root, directory, name));
  }
  return checkpoint;
}

absl::Status Checkpoint::OpenShards(const Root& root, std::string_view directory,
                                    const ShardIndex& index) {
  NameList missing;
  for (const std::string& shard : index.shards()) {
    if (shard.starts_with('/')) {
      return ReasonError(
          Reason::kIllegalCheckpoint,
          absl::StrCat("folder ", ShortQuoted(directory), ": the index names ", ShortQuoted(shard),
                       "; shards must be relative to the folder"));
    }
    auto file = root.OpenFile(PathIn(directory, shard));
    if (absl::IsNotFound(file.status())) {
      missing.Add(ShortQuoted(shard));
      continue;
    }
    if (!file.ok()) return file.status();
    TETRAD_ASSIGN_OR_RETURN(SafetensorsFile opened, SafetensorsFile::Open(*std::move(file)));
    files_.push_back(std::move(opened));
  }
  if (missing.empty()) return absl::OkStatus();
  return ReasonError(Reason::kFileNotFound,
                     absl::StrCat("folder ", ShortQuoted(directory),
                                  ": the index names shards that are not there: ", missing.Text()));
}

absl::Status Checkpoint::CheckIndex(const ShardIndex& index) const {
  NameList unlisted, misplaced, missing;
  for (size_t i = 0; i < files_.size(); ++i) {
    const SafetensorsHeader& header = files_[i].header();
    for (size_t t = 0; t < header.size(); ++t) {
      const std::string_view name = header.tensor(t).name;
      const std::optional<uint32_t> shard = index.ShardOf(name);
      if (!shard) {
        unlisted.Add(absl::StrCat(ShortQuoted(name), " in ", ShortQuoted(index.shards()[i])));
      } else if (*shard != i) {
        misplaced.Add(absl::StrCat(ShortQuoted(name), " is in ", ShortQuoted(index.shards()[i]),
                                   ", not in ", ShortQuoted(index.shards()[*shard])));
      }
    }
  }
  for (const auto& [name, shard] : index.tensors()) {
    if (!files_[shard].header().Find(name)) {
      missing.Add(absl::StrCat(ShortQuoted(name), " in ", ShortQuoted(index.shards()[shard])));
    }
  }
  const auto refuse = [](const char* reason, const NameList& names) {
    return ReasonError(Reason::kIllegalCheckpoint,
                       absl::StrCat("index: ", reason, ": ", names.Text()));
  };
  if (!misplaced.empty()) return refuse("tensors in another shard than it says", misplaced);
  if (!missing.empty()) return refuse("tensors that are not where it says", missing);
  if (!unlisted.empty()) return refuse("tensors it does not list", unlisted);
  return absl::OkStatus();
}

absl::Status Checkpoint::ReadDeclaration(const Root& root, std::string_view directory,
                                         const char* name) {
  const auto file = root.OpenFile(PathIn(directory, name));
  if (absl::IsNotFound(file.status())) return absl::OkStatus();
  if (!file.ok()) return file.status();
  TETRAD_ASSIGN_OR_RETURN(const std::string json, ReadWhole(*file, kMaxConfigBytes));
  const auto declared = DeclaredDialect(json);
  if (!declared.ok()) {
    return WithPrefix(absl::StrCat(file->name(), ": "), declared.status());
  }
  if (*declared == Dialect::kAuto) return absl::OkStatus();
  if (declared_dialect_ != Dialect::kAuto && declared_dialect_ != *declared) {
    return ReasonError(Reason::kIllegalCheckpoint,
                       absl::StrCat(declared_by_, " and ", file->name(),
                                    " declare different dialects of quantization"));
  }
  declared_dialect_ = *declared;
  declared_by_ = file->name();
  return absl::OkStatus();
}

std::optional<CheckpointTensor> Checkpoint::Find(std::string_view name) const {
  for (const SafetensorsFile& file : files_) {
    if (const auto info = file.header().Find(name)) return CheckpointTensor{&file, *info};
  }
  return std::nullopt;
}

absl::Status Checkpoint::ForEach(
    absl::FunctionRef<absl::Status(const CheckpointTensor&)> visit) const {
  for (const SafetensorsFile& file : files_) {
    for (size_t i = 0; i < file.header().size(); ++i) {
      TETRAD_RETURN_IF_ERROR(visit({&file, file.header().tensor(i)}));
    }
  }
  return absl::OkStatus();
}

}  // namespace tetrad
