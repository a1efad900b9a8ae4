// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// ExecuteTask: one grouped GEMM on its way from a message to a reply, whatever
// kind of call it came with.
//
//   submitting  the request is decoded, its operands copied to the device
//               (if small by a reply thread that spins
//               or here, else on the work pool)
//   running     the engine has it; no thread of ours waits
//   replying    the output is copied into the reply, on the reply pool
//
// One that is cancelled while it runs ends at once, whatever the device does;
// its result is dropped when it comes. Request and reply are counted in
// call_bytes until the ExecuteTask is destroyed or ReturnBytes() is called: a
// client that does not read keeps what it asked for, and no more than that.
//
// Start() is called once, Cancel() from any thread at any time before the
// destructor. It must be kept until `done` was called.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tetrad/v1/gemm.pb.h"

#include "engine/launch.h"
#include "server/service_context.h"

namespace tetrad {

class ExecuteTask {
 public:
  // Called once, from any thread, also from within Start() or Cancel(). Nothing
  // of the ExecuteTask is touched afterwards: it may be destroyed there.
  using Done = absl::AnyInvocable<void(const absl::Status&)>;

  // For who must know more than how it ends. Both on the thread that hands the
  // request to the engine, before `done`.
  struct Admission {
    // Asked with the bytes of the output before memory is taken; may refuse.
    absl::AnyInvocable<absl::Status(int64_t output_bytes)> reserve;
    // The engine has it: what comes now is its outcome, and no refusal.
    absl::AnyInvocable<void()> admitted;
  };

  ExecuteTask(const ServiceContext& service, const std::string& client, Flow flow,
              Admission admission = {});
  ~ExecuteTask();
  ExecuteTask(const ExecuteTask&) = delete;
  ExecuteTask& operator=(const ExecuteTask&) = delete;

  // The messages stay where they are until `done`. The reply is filled if the
  // status is OK, and empty otherwise.
  void Start(const v1::ExecuteRequest& request, absl::Time deadline, v1::ExecuteResponse& reply,
             Done done);
  // Ends it with `status` if it has not been executed yet.
  void Cancel(const absl::Status& status);
  // After `done`, at the latest by the destructor.
  void ReturnBytes();

 private:
  enum class Phase { kSubmitting, kRunning, kReplying, kEnded };
  using Result = absl::StatusOr<Executed>;
  struct Link;

  absl::Status TakeBytes(int64_t bytes);
  void SubmitSmall();  // on the work pool if its plan must be built
  void SubmitLater();  // on the work pool
  void Refuse(const absl::Status& status);
  void Submit();
  absl::Status Hand(ExecutionId* id);
  static void Completed(const std::shared_ptr<Link>& link, Result result);
  void Reply(Result result);
  absl::Status Fill(const Executed& executed, std::string weights);
  void End(const absl::Status& status);

  const ServiceContext& service_;
  const std::string& client_;
  const Flow flow_;
  const v1::ExecuteRequest* request_ = nullptr;
  v1::ExecuteResponse* reply_ = nullptr;
  absl::Time deadline_;
  Admission admission_;
  Done done_;
  int64_t taken_bytes_ = 0;
  const std::shared_ptr<Link> link_;
};

}  // namespace tetrad
