// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// AttachCall: one Memory.Attach stream, which holds a lease as long as it is
// open. However it ends, the lease is detached exactly once, when the RPC
// library is done with the stream.
//
// A drain does not wait for it, since nothing can be lost with it: it hears
// that the daemon drains, and ends when the gate closes. It also ends, with OK,
// when its lease was ended by Detach, and with ABORTED when the lease was
// attached again: the newest stream holds it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "tetrad/v1/memory.pb.h"

#include "server/service_context.h"

namespace tetrad {

class AttachCall;

// The open Attach streams by lease. Thread-safe.
class Attachments {
 public:
  // `call` holds the attachment; of two of one lease, the older is ended.
  void Add(const LeaseInfo& attachment, std::shared_ptr<AttachCall> call);
  // Unless another holds the lease meanwhile.
  void Remove(const LeaseInfo& attachment);
  // Ends the stream that holds the lease, if there is one.
  void End(const std::string& lease);

 private:
  struct Holder {
    uint64_t attachment = 0;
    std::weak_ptr<AttachCall> call;
  };
  std::mutex mutex_;
  std::map<std::string, Holder> holders_;  // guarded by mutex_
};

// The returned reactor owns itself.
grpc::ServerWriteReactor<v1::AttachEvent>* StartAttach(const ServiceContext& service,
                                                       Attachments& attachments,
                                                       grpc::CallbackServerContext& context,
                                                       const v1::AttachRequest& request);

}  // namespace tetrad
