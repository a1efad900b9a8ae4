// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/execute_call.h"

#include "server/call.h"
#include "server/execute_task.h"

namespace tetrad {
namespace {

class ExecuteCall final : public grpc::ServerUnaryReactor {
 public:
  ExecuteCall(const ServiceContext& service, grpc::CallbackServerContext& context)
      : context_(context),
        call_(service, Method::kExecute, context),
        task_(service, call_.client(), call_.caller().flow) {}

  void Start(const v1::ExecuteRequest& request, v1::ExecuteResponse& response) {
    call_.AddReceived(static_cast<int64_t>(request.ByteSizeLong()));
    if (!call_.admission().ok()) return Finish(call_.End(call_.admission()));
    task_.Start(request, ToTime(context_.raw_deadline()), response,
                [this, &response](const absl::Status& status) {
                  if (status.ok()) {
                    call_.AwaitReply(static_cast<int64_t>(response.ByteSizeLong()));
                  }
                  Finish(call_.End(status));
                });
  }
  void OnCancel() override { task_.Cancel(CancelledStatus(context_)); }
  void OnDone() override { delete this; }
  // Asks the RPC library to run OnDone() and OnCancel() where it finds out, not on
  // a thread of its executor: that hop costs as much as a small RPC. The library
  // calls this a detail of its own, so a version of it may lack it: then it goes,
  // and nothing but time is lost. Both reactions are short, and the library holds
  // no lock when it calls them. Finish() may so delete the call.
  bool InternalInlineable() override { return true; }

 private:
  const grpc::CallbackServerContext& context_;
  Call call_;
  ExecuteTask task_;
};

}  // namespace

grpc::ServerUnaryReactor* StartExecute(const ServiceContext& service,
                                       grpc::CallbackServerContext& context,
                                       const v1::ExecuteRequest& request,
                                       v1::ExecuteResponse& response) {
  auto* call = new ExecuteCall(service, context);
  call->Start(request, response);
  return call;
}

}  // namespace tetrad
