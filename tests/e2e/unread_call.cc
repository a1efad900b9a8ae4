// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/unread_call.h"

#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "grpcpp/support/byte_buffer.h"

#include "tests/e2e/daemon.h"

namespace tetrad::e2e {

UnreadCall::UnreadCall(const std::string& address, const std::string& method,
                       const google::protobuf::MessageLite& request, absl::Duration deadline)
    : channel_(Connect(address)), stub_(channel_) {
  if (deadline != absl::InfiniteDuration()) {
    context_.set_deadline(absl::ToChronoTime(absl::Now() + deadline));
  }
  call_ = stub_.PrepareCall(&context_, method, &queue_);
  call_->StartCall(this);
  Complete();
  Send(request);
}

UnreadCall::~UnreadCall() {
  Cancel();
  if (!finished_) Finish();
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

void UnreadCall::Complete() {
  void* tag = nullptr;
  bool ok = false;
  EXPECT_TRUE(queue_.Next(&tag, &ok));
}

void UnreadCall::Send(const google::protobuf::MessageLite& request) {
  const grpc::Slice slice(request.SerializeAsString());
  // Sent and not closed: the daemon takes a unary request as soon as it is whole.
  call_->Write(grpc::ByteBuffer(&slice, 1), this);
  Complete();
}

grpc::Status UnreadCall::Finish() {
  finished_ = true;
  grpc::Status status;
  call_->Finish(&status, this);
  Complete();
  return status;
}

}  // namespace tetrad::e2e
