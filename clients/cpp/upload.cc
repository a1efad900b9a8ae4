// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Client::Upload: the upload itself, and how it goes on after a broken connection.
#include <algorithm>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "clients/cpp/client.h"
#include "clients/cpp/connection.h"
#include "clients/cpp/resumption.h"

namespace tetrad {
namespace {

constexpr size_t kUploadChunkBytes = 1 << 20;
constexpr int kMostRanges = 1024;  // that the daemon tells of an operand
// Whoever gave an upload up does not wait long for the daemon to forget it.
constexpr absl::Duration kForgetLimit = absl::Seconds(2);

struct Range {
  v1::WeightsOperand operand{};
  size_t offset = 0;
  size_t bytes = 0;
};

// Of one operand. A list that may have been cut ends in all that follows: the daemon
// leaves alone what it has.
void AddMissing(v1::WeightsOperand operand,
                const google::protobuf::RepeatedPtrField<v1::ByteRange>& missing, size_t size,
                std::vector<Range>& out) {
  for (const v1::ByteRange& range : missing) {
    const size_t offset = std::min(static_cast<size_t>(range.offset()), size);
    out.push_back({operand, offset, std::min(static_cast<size_t>(range.bytes()), size - offset)});
  }
  if (missing.size() >= kMostRanges) out.back().bytes = size - out.back().offset;
}

int64_t Sum(const std::vector<Range>& ranges) {
  size_t bytes = 0;
  for (const Range& range : ranges) bytes += range.bytes;
  return static_cast<int64_t>(bytes);
}

struct Operands {
  std::span<const uint8_t> codes;
  std::span<const uint8_t> scales;
  std::span<const uint8_t> of(v1::WeightsOperand operand) const {
    return operand == v1::WEIGHTS_OPERAND_CODES ? codes : scales;
  }
};

// One stream: the header and these ranges. `sent` hears of each chunk.
grpc::Status SendRanges(v1::Weights::Stub& stub, grpc::ClientContext* context,
                        const v1::UploadHeader& header, const Operands& operands,
                        const std::vector<Range>& ranges, const std::function<void(int64_t)>& sent,
                        v1::UploadResponse& response) {
  const auto writer = stub.Upload(context, &response);
  v1::UploadRequest request;
  *request.mutable_header() = header;
  bool open = writer->Write(request);
  for (const Range& range : ranges) {
    const auto bytes = operands.of(range.operand).subspan(range.offset, range.bytes);
    for (size_t at = 0; open && at < bytes.size(); at += kUploadChunkBytes) {
      const auto part = bytes.subspan(at, std::min(kUploadChunkBytes, bytes.size() - at));
      v1::UploadChunk& chunk = *request.mutable_chunk();
      chunk.set_operand(range.operand);
      chunk.set_offset(static_cast<int64_t>(range.offset + at));
      chunk.set_data(part.data(), part.size());
      open = writer->Write(request);
      if (open) sent(static_cast<int64_t>(part.size()));
    }
  }
  if (open) writer->WritesDone();
  // A write that failed means the daemon ended the stream: Finish has the reason.
  return writer->Finish();
}

}  // namespace

absl::StatusOr<v1::WeightsInfo> Client::Upload(const v1::UploadHeader& header,
                                               std::span<const uint8_t> codes,
                                               std::span<const uint8_t> scales,
                                               const Progress& progress,
                                               const CallOptions& options) {
  Connection& daemon = *connection_;
  Resumption resumption(options, daemon.options, daemon.options.transfer_deadline);
  v1::UploadHeader sent_header = header;
  const bool own_key = options.resume && header.upload_key().empty();
  if (own_key) sent_header.set_upload_key(resumption.key());
  const Operands operands{codes, scales};
  const auto total = static_cast<int64_t>(codes.size() + scales.size());
  const std::vector<Range> everything = {{v1::WEIGHTS_OPERAND_CODES, 0, codes.size()},
                                         {v1::WEIGHTS_OPERAND_SCALES, 0, scales.size()}};
  v1::GetUploadRequest question;
  question.set_name(header.name());
  question.set_upload_key(sent_header.upload_key());

  int64_t told = 0;
  absl::Status status;
  // A key of the caller's may be that of an upload which broke off before this call.
  bool ask = options.resume && !own_key;
  do {
    std::vector<Range> ranges = everything;
    if (std::exchange(ask, true)) {
      auto kept = daemon.Unary(Rpc::kGetUpload, daemon.weights, &v1::Weights::Stub::GetUpload,
                               question, resumption.Attempt());
      if (kept.ok() && !kept->has_weights()) {
        ranges.clear();
        AddMissing(v1::WEIGHTS_OPERAND_CODES, kept->missing_codes(), codes.size(), ranges);
        AddMissing(v1::WEIGHTS_OPERAND_SCALES, kept->missing_scales(), scales.size(), ranges);
        resumption.Reached(total - Sum(ranges));
      }
      // One that is complete is answered when its header comes, if that is equal. One
      // that is not known, expired or lost with its daemon, begins anew.
      status = kept.status();
      if (!kept.ok() && !absl::IsNotFound(status)) continue;
    }
    int64_t done = total - Sum(ranges);
    OutgoingCall call = daemon.Begin(resumption.Attempt(), daemon.options.transfer_deadline);
    v1::UploadResponse response;
    const auto sent = [&](int64_t bytes) {
      done += bytes;
      if (done <= told) return;
      told = done;
      resumption.Sent();
      if (progress) progress(done, total);
    };
    status = daemon.Named(FromGrpcStatus(
        SendRanges(daemon.weights, call.context(), sent_header, operands, ranges, sent, response)));
    if (status.ok()) {
      if (told < total && progress) progress(total, total);
      return std::move(*response.mutable_weights());
    }
  } while (resumption.Again(status));

  // Nobody else knows the key, so nothing need be kept for it.
  if (own_key && !absl::IsUnavailable(status)) {
    const CallOptions brief{.deadline = kForgetLimit};
    const auto kept = daemon.Unary(Rpc::kGetUpload, daemon.weights, &v1::Weights::Stub::GetUpload,
                                   question, brief);
    if (kept.ok() && !kept->has_weights()) {
      (void)Drop(absl::StrCat(header.name(), "@", kept->version()), brief);
    }
  }
  return status;
}

}  // namespace tetrad
