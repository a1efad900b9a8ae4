// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// OpenUploads: uploads that have a key, from their first header until they are
// complete, and for a while after a stream of theirs broke off; then their
// answers, for clients that did not get them. A step function of injected time.
//
// An upload belongs to a client, a name and a key: others neither see it nor can
// go on with it. A stream attaches to it with its header; of two the newer has
// it. What the older is copying ends first, and nothing that it brings later is
// copied, so that every byte is whole and no gap counts as written. An upload
// that no stream has expires after `keep`, and its version is abandoned.
//
// Thread-safe. Attach() waits for what another stream of the same upload is
// copying or sealing. Errors: ALREADY_EXISTS for another header under a key,
// ABORTED for a stream whose upload was taken over and for a version that was
// dropped meanwhile, NOT_FOUND, RESOURCE_EXHAUSTED at the limits.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tetrad/v1/weights.pb.h"

#include "engine/support/instant.h"
#include "engine/weights.h"

namespace tetrad {

struct UploadId {
  std::string client;
  std::string name;
  std::string key;
  std::strong_ordering operator<=>(const UploadId&) const = default;
};

class OpenUploads {
 public:
  struct Limits {
    absl::Duration keep = absl::Minutes(5);
    int64_t uploads = 1024;        // not complete
    int64_t client_uploads = 256;  // not complete, of one client
    // Beyond these the oldest answers go early; no memory of the device is at stake.
    int64_t client_answers = 256;
    int64_t answer_bytes = 16 << 20;
  };
  OpenUploads(WeightsRegistry& registry, const Limits& limits)
      : registry_(registry), limits_(limits) {}

 private:
  struct Upload;

 public:
  // A stream's hold on an upload.
  struct Hold {
    std::shared_ptr<Upload> upload;
    uint64_t number = 0;
  };
  struct Attached {
    Hold hold;
    std::optional<v1::WeightsInfo> answer;  // it is complete, and not held
  };
  // `header` is what must be equal of all streams of an upload. The first begins
  // a version of `spec`. `taken_over` is called once, without a lock, if another
  // stream attaches before Detach(); it may be called just after.
  absl::StatusOr<Attached> Attach(UploadId id, std::string_view header, const WeightsSpec& spec,
                                  std::function<void()> taken_over, Instant now);
  // Bytes that arrived before may come again; they are not looked at.
  absl::Status Write(const Hold& hold, WeightsOperand operand, int64_t offset,
                     std::span<const std::byte> data);
  // Ends it: every byte is there. `seal` also seals it. On failure it is as before.
  absl::StatusOr<WeightsInfo> Complete(const Hold& hold, bool seal, Instant now);
  // The stream ends. Without `keep` the version is abandoned at once. Nothing is
  // done if the upload is complete, or another stream has it.
  void Detach(const Hold& hold, bool keep, Instant now);

  absl::StatusOr<v1::GetUploadResponse> Get(const UploadId& id) const;

  // Ends what has expired; when the next does, kNever if nothing will.
  Instant Step(Instant now);

  struct Use {
    int64_t uploads = 0;  // not complete
    int64_t kept = 0;     // of those, without a stream
    int64_t answers = 0;
  };
  Use use() const;

 private:
  using Map = std::map<UploadId, std::shared_ptr<Upload>>;
  // These need mutex_.
  absl::Status CheckRoom(const std::string& client) const;
  absl::Status CheckHeld(const Hold& hold) const;
  void Answer(Upload& upload, const v1::WeightsInfo& info, Instant now);
  void DropOldAnswers(const std::string& client);
  // These need the upload's `copying`.
  absl::StatusOr<int64_t> HeldVersion(const Hold& hold) const;
  absl::StatusOr<std::optional<v1::WeightsInfo>> BeginOrGoOn(const Hold& hold,
                                                             const WeightsSpec& spec, Instant now);

  WeightsRegistry& registry_;
  const Limits limits_;
  mutable std::mutex mutex_;
  Map uploads_;             // guarded by mutex_
  uint64_t last_hold_ = 0;  // guarded by mutex_
};

}  // namespace tetrad
