// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// UnreadCall: a call whose request is sent, and whose reply nobody reads: the
// daemon can send no more of it than the network's window takes. For one thread.
#pragma once

#include <memory>
#include <string>

#include <google/protobuf/message_lite.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include "absl/time/time.h"

namespace tetrad::e2e {

class UnreadCall {
 public:
  // "/tetrad.v1.Gemm/Execute"; the connection is its own.
  UnreadCall(const std::string& address, const std::string& method,
             const google::protobuf::MessageLite& request,
             absl::Duration deadline = absl::InfiniteDuration());
  ~UnreadCall();

  // One more message of a stream of requests.
  void Send(const google::protobuf::MessageLite& request);
  void Cancel() { context_.TryCancel(); }
  // How it ends, without reading.
  grpc::Status Finish();

 private:
  void Complete();

  std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  bool finished_ = false;
};

}  // namespace tetrad::e2e
