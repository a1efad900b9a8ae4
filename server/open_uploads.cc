// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/open_uploads.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"
#include "engine/support/no_memory.h"
#include "engine/support/status_macros.h"
#include "server/codec.h"

namespace tetrad {
namespace {

constexpr size_t kMostRanges = 1024;  // of an operand, in an answer
// What an answer takes beside itself: the entry, its name and its key.
constexpr int64_t kAnswerOverheadBytes = 512;

v1::WeightsInfo ToMessage(const WeightsInfo& info) {
  v1::WeightsInfo message;
  ToProto(info, message);
  return message;
}

absl::Status NoUpload() {
  return ReasonError(Reason::kUploadNotFound,
                     "upload_key: no upload of that name and key is kept for this client");
}

}  // namespace

struct OpenUploads::Upload {
  Upload(UploadId i, uint64_t h) : id(std::move(i)), header(h) {}
  const UploadId id;
  const uint64_t header;  // its hash: whoever finds another one of it has only its own uploads

  std::mutex copying;  // held by whatever changes the version; taken before OpenUploads::mutex_

  // Guarded by OpenUploads::mutex_.
  int64_t version = 0;  // 0: not begun
  uint64_t holder = 0;  // 0: no stream
  std::function<void()> taken_over;
  Instant expiry = kNever;            // while no stream has it
  std::optional<std::string> answer;  // a v1::WeightsInfo
  int64_t answer_bytes() const {
    return answer.has_value() ? static_cast<int64_t>(answer->size()) + kAnswerOverheadBytes : 0;
  }
};

absl::StatusOr<OpenUploads::Attached> OpenUploads::Attach(UploadId id, std::string_view header,
                                                          const WeightsSpec& spec,
                                                          std::function<void()> taken_over,
                                                          Instant now) {
  return CatchNoMemory([&]() -> absl::StatusOr<Attached> {
    const uint64_t hash = std::hash<std::string_view>()(header);
    Attached attached;
    std::function<void()> older;
    {
      std::lock_guard lock(mutex_);
      auto found = uploads_.find(id);
      if (found == uploads_.end()) {
        TETRAD_RETURN_IF_ERROR(CheckRoom(id.client));
        auto upload = std::make_shared<Upload>(id, hash);
        found = uploads_.emplace(std::move(id), std::move(upload)).first;
      }
      Upload& upload = *found->second;
      if (upload.header != hash) {
        return ReasonError(Reason::kKeyReused,
                           "header.upload_key: another header was sent with this name and key");
      }
      if (upload.answer.has_value()) {
        attached.answer.emplace().ParseFromString(*upload.answer);
        return attached;
      }
      older = std::exchange(upload.taken_over, std::move(taken_over));
      upload.expiry = kNever;
      attached.hold = {found->second, upload.holder = ++last_hold_};
    }
    if (older) older();
    std::lock_guard copies(attached.hold.upload->copying);
    bool keep = true;
    absl::Cleanup let_go = [&] { Detach(attached.hold, keep, now); };
    auto answer = BeginOrGoOn(attached.hold, spec, now);
    keep = !absl::IsAborted(answer.status());
    TETRAD_RETURN_IF_ERROR(answer.status());
    attached.answer = *std::move(answer);
    std::move(let_go).Cancel();
    return attached;
  });
}

absl::StatusOr<std::optional<v1::WeightsInfo>> OpenUploads::BeginOrGoOn(const Hold& hold,
                                                                        const WeightsSpec& spec,
                                                                        Instant now) {
  Upload& upload = *hold.upload;
  {
    std::lock_guard lock(mutex_);
    // The one that had it may have completed it, which takes the hold away.
    if (upload.answer.has_value()) {
      std::optional<v1::WeightsInfo> answer(std::in_place);
      answer->ParseFromString(*upload.answer);
      return answer;
    }
  }
  TETRAD_ASSIGN_OR_RETURN(const int64_t version, HeldVersion(hold));
  if (version == 0) {
    TETRAD_ASSIGN_OR_RETURN(const int64_t begun, registry_.Begin(spec));
    std::lock_guard lock(mutex_);
    upload.version = begun;
    return std::nullopt;
  }
  const absl::StatusOr<WeightsInfo> info = registry_.Find(upload.id.name, version);
  if (!info.ok()) {
    return ReasonError(Reason::kStaleHandle,
                       absl::StrCat("weights ", upload.id.name, "@", version,
                                    " were dropped during the upload; begin again"));
  }
  if (!info->sealed) return std::nullopt;
  // Somebody sealed it by name, which ends it as well.
  std::optional<v1::WeightsInfo> answer(ToMessage(*info));
  std::lock_guard lock(mutex_);
  Answer(upload, *answer, now);
  return answer;
}

absl::Status OpenUploads::Write(const Hold& hold, WeightsOperand operand, int64_t offset,
                                std::span<const std::byte> data) {
  std::lock_guard copies(hold.upload->copying);
  TETRAD_ASSIGN_OR_RETURN(const int64_t version, HeldVersion(hold));
  return registry_.WriteMissing(hold.upload->id.name, version, operand, offset, data);
}

absl::StatusOr<WeightsInfo> OpenUploads::Complete(const Hold& hold, bool seal, Instant now) {
  return CatchNoMemory([&]() -> absl::StatusOr<WeightsInfo> {
    Upload& upload = *hold.upload;
    std::lock_guard copies(upload.copying);
    TETRAD_ASSIGN_OR_RETURN(const int64_t version, HeldVersion(hold));
    if (!seal) {
      for (const WeightsOperand operand : {WeightsOperand::kCodes, WeightsOperand::kScales}) {
        TETRAD_ASSIGN_OR_RETURN(const std::vector<ByteRange> missing,
                                registry_.Missing(upload.id.name, version, operand, 1));
        if (missing.empty()) continue;
        return ReasonError(
            Reason::kWeightsIncomplete,
            absl::StrCat(operand == WeightsOperand::kCodes ? "codes" : "scales",
                         ": bytes are missing, the first at ", missing.front().offset));
      }
    }
    TETRAD_ASSIGN_OR_RETURN(const WeightsInfo info, seal ? registry_.Seal(upload.id.name, version)
                                                         : registry_.Find(upload.id.name, version));
    const v1::WeightsInfo message = ToMessage(info);
    std::lock_guard lock(mutex_);
    Answer(upload, message, now);
    return info;
  });
}

void OpenUploads::Answer(Upload& upload, const v1::WeightsInfo& info, Instant now) {
  upload.answer = info.SerializeAsString();
  upload.holder = 0;
  upload.taken_over = nullptr;
  upload.expiry = After(now, absl::ToInt64Nanoseconds(limits_.keep));
  DropOldAnswers(std::string(upload.id.client));
}

void OpenUploads::DropOldAnswers(const std::string& client) {
  for (;;) {
    int64_t bytes = 0;
    int64_t answers = 0;
    auto oldest = uploads_.end();
    auto clients_oldest = uploads_.end();
    const auto older = [this](Map::iterator at, Map::iterator than) {
      return than == uploads_.end() || at->second->expiry < than->second->expiry;
    };
    for (auto at = uploads_.begin(); at != uploads_.end(); ++at) {
      if (!at->second->answer.has_value()) continue;
      bytes += at->second->answer_bytes();
      if (older(at, oldest)) oldest = at;
      if (at->first.client != client) continue;
      ++answers;
      if (older(at, clients_oldest)) clients_oldest = at;
    }
    if (answers > limits_.client_answers) {
      uploads_.erase(clients_oldest);
    } else if (bytes > limits_.answer_bytes) {
      uploads_.erase(oldest);
    } else {
      return;
    }
  }
}

void OpenUploads::Detach(const Hold& hold, bool keep, Instant now) {
  Upload& upload = *hold.upload;
  std::function<void()> listener;  // goes after the lock
  int64_t abandoned = 0;
  {
    std::lock_guard lock(mutex_);
    if (upload.holder != hold.number) return;
    listener = std::exchange(upload.taken_over, nullptr);
    upload.holder = 0;
    if (keep && upload.version != 0) {
      upload.expiry = After(now, absl::ToInt64Nanoseconds(limits_.keep));
      return;
    }
    abandoned = upload.version;
    uploads_.erase(upload.id);
  }
  registry_.Abandon(upload.id.name, abandoned);
}

absl::StatusOr<v1::GetUploadResponse> OpenUploads::Get(const UploadId& id) const {
  return CatchNoMemory([&]() -> absl::StatusOr<v1::GetUploadResponse> {
    v1::GetUploadResponse response;
    {
      std::lock_guard lock(mutex_);
      const auto found = uploads_.find(id);
      if (found == uploads_.end() || found->second->version == 0) return NoUpload();
      response.set_version(found->second->version);
      if (found->second->answer.has_value()) {
        response.mutable_weights()->ParseFromString(*found->second->answer);
        return response;
      }
    }
    const auto info = registry_.Find(id.name, response.version());
    if (!info.ok()) return NoUpload();  // it was dropped
    if (info->sealed) {
      *response.mutable_weights() = ToMessage(*info);
      return response;
    }
    for (const WeightsOperand operand : {WeightsOperand::kCodes, WeightsOperand::kScales}) {
      const auto missing = registry_.Missing(id.name, response.version(), operand, kMostRanges);
      if (!missing.ok()) {
        // Sealed meanwhile, by the stream whose connection broke.
        const auto now = registry_.Find(id.name, response.version());
        if (!now.ok() || !now->sealed) return missing.status();
        response.clear_missing_codes();
        *response.mutable_weights() = ToMessage(*now);
        return response;
      }
      auto& list = operand == WeightsOperand::kCodes ? *response.mutable_missing_codes()
                                                     : *response.mutable_missing_scales();
      for (const ByteRange& range : *missing) {
        v1::ByteRange& message = *list.Add();
        message.set_offset(range.offset);
        message.set_bytes(range.bytes);
      }
    }
    return response;
  });
}

Instant OpenUploads::Step(Instant now) {
  Map ended;  // moved by nodes: nothing here may lack memory
  Instant next = kNever;
  {
    std::lock_guard lock(mutex_);
    for (auto at = uploads_.begin(); at != uploads_.end();) {
      if (at->second->expiry > now) {
        next = std::min(next, at->second->expiry);
        ++at;
        continue;
      }
      ended.insert(uploads_.extract(at++));
    }
  }
  // No stream has them, and none finds them any more.
  for (const auto& [id, upload] : ended) {
    if (!upload->answer.has_value()) registry_.Abandon(upload->id.name, upload->version);
  }
  return next;
}

OpenUploads::Use OpenUploads::use() const {
  Use use;
  std::lock_guard lock(mutex_);
  for (const auto& [id, upload] : uploads_) {
    if (upload->answer.has_value()) {
      ++use.answers;
    } else {
      ++use.uploads;
      if (upload->holder == 0) ++use.kept;
    }
  }
  return use;
}

absl::Status OpenUploads::CheckRoom(const std::string& client) const {
  int64_t all = 0;
  int64_t of_client = 0;
  for (const auto& [id, upload] : uploads_) {
    if (upload->answer.has_value()) continue;
    ++all;
    if (id.client == client) ++of_client;
  }
  if (of_client >= limits_.client_uploads) {
    return ReasonError(Reason::kQuota, absl::StrCat("header.upload_key: ", of_client,
                                                    " uploads of this client are open, the limit"));
  }
  if (all >= limits_.uploads) {
    return ReasonError(Reason::kTableFull, absl::StrCat("header.upload_key: ", all,
                                                        " uploads with a key are open, the limit"));
  }
  return absl::OkStatus();
}

absl::Status OpenUploads::CheckHeld(const Hold& hold) const {
  if (hold.upload->holder == hold.number) return absl::OkStatus();
  return ReasonError(Reason::kTakenOver, "header.upload_key: a newer stream goes on with it");
}

absl::StatusOr<int64_t> OpenUploads::HeldVersion(const Hold& hold) const {
  std::lock_guard lock(mutex_);
  TETRAD_RETURN_IF_ERROR(CheckHeld(hold));
  return hold.upload->version;
}

}  // namespace tetrad
