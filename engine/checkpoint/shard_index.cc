// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/shard_index.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"

#include "engine/checkpoint/json_events.h"
#include "engine/checkpoint/printable.h"
#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

using Kind = JsonEvent::Kind;

constexpr auto kName = &std::pair<std::string, uint32_t>::first;

}  // namespace

absl::StatusOr<ShardIndex> ShardIndex::Parse(std::string_view json) {
  ShardIndex index;
  std::map<std::string, uint32_t, std::less<>> shards;  // to the order of first mention
  bool in_map = false;
  bool map_seen = false;
  std::string tensor;
  TETRAD_RETURN_IF_ERROR(ParseJson(json, [&](const JsonEvent& event) -> absl::Status {
    if (event.depth == 0) {
      const bool object = event.kind == Kind::kBeginObject || event.kind == Kind::kEndObject;
      return object ? absl::OkStatus()
                    : ReasonError(Reason::kIllegalCheckpoint, "index is not a JSON object");
    }
    if (event.depth == 1 && event.kind == Kind::kKey) {
      in_map = event.text == "weight_map";
      if (in_map && std::exchange(map_seen, true)) {
        return ReasonError(Reason::kIllegalCheckpoint, "`weight_map` appears twice");
      }
      return absl::OkStatus();
    }
    if (!in_map) return absl::OkStatus();
    if (event.depth == 1) {
      if (event.kind == Kind::kBeginObject || event.kind == Kind::kEndObject) {
        return absl::OkStatus();
      }
      return ReasonError(Reason::kIllegalCheckpoint, "`weight_map` is not an object");
    }
    if (event.kind == Kind::kKey) {
      tensor = event.text;
      return absl::OkStatus();
    }
    if (event.kind != Kind::kString) {
      return ReasonError(
          Reason::kIllegalCheckpoint,
          absl::StrCat("`weight_map` gives no file name for tensor `", Printable(tensor), "`"));
    }
    auto shard = shards.find(event.text);
    if (shard == shards.end()) {
      shard = shards.emplace(event.text, static_cast<uint32_t>(shards.size())).first;
    }
    index.tensors_.emplace_back(std::move(tensor), shard->second);
    return absl::OkStatus();
  }));
  if (!map_seen) return ReasonError(Reason::kIllegalCheckpoint, "`weight_map` is missing");

  std::vector<uint32_t> position(shards.size());  // order of first mention -> sorted
  for (const auto& [name, mention] : shards) {
    position[mention] = static_cast<uint32_t>(index.shards_.size());
    index.shards_.push_back(name);
  }
  for (auto& [name, shard] : index.tensors_) shard = position[shard];
  std::ranges::sort(index.tensors_, {}, kName);
  const auto twin = std::ranges::adjacent_find(index.tensors_, {}, kName);
  if (twin != index.tensors_.end()) {
    return ReasonError(Reason::kIllegalCheckpoint, absl::StrCat("tensor `", Printable(twin->first),
                                                                "` appears twice in `weight_map`"));
  }
  return index;
}

std::optional<uint32_t> ShardIndex::ShardOf(std::string_view tensor) const {
  const auto at = std::ranges::lower_bound(tensors_, tensor, std::less<>(), kName);
  if (at == tensors_.end() || at->first != tensor) return std::nullopt;
  return at->second;
}

}  // namespace tetrad
