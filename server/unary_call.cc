// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/unary_call.h"

#include <utility>

namespace tetrad {
namespace {

class UnaryCall final : public grpc::ServerUnaryReactor {
 public:
  UnaryCall(const ServiceContext& service, Method method, grpc::CallbackServerContext& context,
            UnaryMessages messages, UnaryBody body)
      : call_(service, method, context), messages_(messages), body_(std::move(body)) {
    call_.AddReceived(static_cast<int64_t>(messages_.request->ByteSizeLong()));
  }

  const absl::Status& admission() const { return call_.admission(); }

  void Run() {
    const absl::Status status = Guarded([this] { return body_(call_.caller()); });
    if (status.ok()) call_.AwaitReply(static_cast<int64_t>(messages_.response->ByteSizeLong()));
    End(status);
  }
  void End(const absl::Status& status) { Finish(call_.End(status)); }
  void OnDone() override { delete this; }

 private:
  Call call_;
  const UnaryMessages messages_;
  UnaryBody body_;
};

}  // namespace

grpc::ServerUnaryReactor* AnswerNow(const ServiceContext& service, Method method,
                                    grpc::CallbackServerContext& context, UnaryMessages messages,
                                    UnaryBody body) {
  auto* call = new UnaryCall(service, method, context, messages, std::move(body));
  call->admission().ok() ? call->Run() : call->End(call->admission());
  return call;
}

grpc::ServerUnaryReactor* AnswerLater(const ServiceContext& service, Method method,
                                      grpc::CallbackServerContext& context, UnaryMessages messages,
                                      UnaryBody body) {
  auto* call = new UnaryCall(service, method, context, messages, std::move(body));
  if (!call->admission().ok()) {
    call->End(call->admission());
  } else if (!service.work.Post([call] { call->Run(); })) {
    call->End(PoolFull(service.work));
  }
  return call;
}

}  // namespace tetrad
