// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cpp/execute_stream.h"

#include <utility>

#include "clients/cpp/connection.h"

namespace tetrad {

class ExecuteStream::Stream {
 public:
  Stream(std::shared_ptr<Client::Connection> connection, const CallOptions& options)
      : connection_(std::move(connection)),
        call_(connection_->Begin(options, connection_->options.transfer_deadline)),
        stream_(connection_->gemm.ExecuteStream(call_.context())) {}

  bool Write(const v1::ExecuteStreamRequest& message) { return stream_->Write(message); }
  void Close() {
    if (!std::exchange(closed_, true)) stream_->WritesDone();
  }
  bool Read(v1::ExecuteStreamResponse& answer) {
    at_end_ = at_end_ || !stream_->Read(&answer);
    return !at_end_;
  }
  absl::Status Finish() {
    if (status_.has_value()) return *status_;
    if (!at_end_) call_.context()->TryCancel();
    v1::ExecuteStreamResponse unwanted;
    while (Read(unwanted)) {
    }
    status_ = connection_->Named(FromGrpcStatus(stream_->Finish()));
    return *status_;
  }

 private:
  const std::shared_ptr<Client::Connection> connection_;
  OutgoingCall call_;
  const std::unique_ptr<
      grpc::ClientReaderWriter<v1::ExecuteStreamRequest, v1::ExecuteStreamResponse>>
      stream_;
  bool closed_ = false;
  bool at_end_ = false;
  std::optional<absl::Status> status_;
};

ExecuteStream::ExecuteStream(std::unique_ptr<Stream> stream) : stream_(std::move(stream)) {}
ExecuteStream::~ExecuteStream() { Finish().IgnoreError(); }

bool ExecuteStream::Submit(uint64_t id, const v1::ExecuteRequest& request, absl::Duration timeout) {
  v1::ExecuteStreamRequest message;
  message.set_id(id);
  *message.mutable_execute() = request;
  message.set_timeout_seconds(absl::ToDoubleSeconds(timeout));
  return stream_->Write(message);
}

bool ExecuteStream::Cancel(uint64_t id) {
  v1::ExecuteStreamRequest message;
  message.set_id(id);
  message.mutable_cancel();
  return stream_->Write(message);
}

void ExecuteStream::Close() { stream_->Close(); }

std::optional<v1::ExecuteStreamResponse> ExecuteStream::Next() {
  std::optional<v1::ExecuteStreamResponse> answer(std::in_place);
  if (!stream_->Read(*answer)) answer.reset();
  return answer;
}

absl::Status ExecuteStream::Finish() { return stream_->Finish(); }

std::unique_ptr<ExecuteStream> Client::OpenExecuteStream(const CallOptions& call) {
  return std::unique_ptr<ExecuteStream>(
      new ExecuteStream(std::make_unique<ExecuteStream::Stream>(connection_, call)));
}

}  // namespace tetrad
