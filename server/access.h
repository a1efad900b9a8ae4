// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Access: the check of every call against the file of --access, as it is now.
// Without a file whoever reaches a listener may do all, and a check is a look at
// one constant.
//
// Reload() takes a changed file; one with errors is refused and the old one
// stays. Calls that last are held to the new one as well: those that it would
// refuse, and those whose token has expired, end with the status a new call
// would get.
//
// Thread-safe, but Load() and Reload() are for one thread. A check takes a
// snapshot, and a lock only for calls that last. A Membership must not outlive
// its Access, and must end before its call does.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include <grpc/grpc.h>

#include "absl/status/status.h"
#include "grpcpp/server_context.h"

#include "server/access_table.h"
#include "server/identity.h"
#include "server/log.h"
#include "server/watched_file.h"

namespace tetrad {

class Access {
 private:
  struct Lasting;

 public:
  // An empty path: no file.
  explicit Access(const std::string& path);

  // Reads the file for the first time.
  absl::Status Load();
  void Reload(Log& log);
  bool restricted() const { return restricted_; }
  // The file as it is now is not what decides.
  bool refused() const { return refused_; }

  // A call that lasts; it leaves when this is destroyed.
  class Membership {
   public:
    Membership() = default;
    ~Membership();
    Membership(const Membership&) = delete;
    Membership& operator=(const Membership&) = delete;
    // Why the call was ended, OK if it was not.
    absl::Status ended() const;
    // Before the RPC is gone, if this may outlive it.
    void Leave();

   private:
    friend class Access;
    Access* access_ = nullptr;
    std::unique_ptr<Lasting> call_;
  };

  // Of a call that begins; joins `lasting` if the method's calls last.
  AccessTable::Verdict Check(const Identities& identities, Method method,
                             grpc::CallbackServerContext& context, Membership& lasting);
  // Of a GET of /metrics; `authorization` may be empty.
  AccessTable::Verdict CheckMetrics(std::string_view authorization) const;

 private:
  struct Lasting {
    Peer peer;
    Credential credential;
    Method method{};
    grpc_call* call = nullptr;
    absl::Status ended;  // guarded by mutex_
  };
  std::shared_ptr<const AccessTable> table() const { return table_.load(); }

  const bool restricted_;
  WatchedFile file_;
  std::atomic<bool> refused_ = false;
  std::atomic<std::shared_ptr<const AccessTable>> table_;
  mutable std::mutex mutex_;
  std::unordered_set<Lasting*> lasting_;  // guarded by mutex_
};

}  // namespace tetrad
