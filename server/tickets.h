// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Tickets: Submit, Wait, Watch and Cancel without their RPCs. It joins the table
// (ticket_table.h) with the executions, the bytes they and their outcomes hold,
// and the clock.
//
// Each ticket under way has a request of its own and a pass of the gate, so that
// a drain waits for it; it needs no call and no connection. What it holds is
// counted twice while it runs, in call_bytes as any Execute and in ticket_bytes
// with the room its outcome will take; from then on the outcome in the latter
// alone. One client may hold half of ticket_bytes.
//
// Thread-safe. Close() before the RPC server is shut down, so that no call waits;
// EndAll() after it. Must outlive neither.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tetrad/v1/gemm.pb.h"

#include "server/call.h"
#include "server/client_bytes.h"
#include "server/service_context.h"
#include "server/step_alarm.h"
#include "server/ticket_table.h"

namespace tetrad {

class Tickets {
 public:
  explicit Tickets(const ServiceContext& service);
  ~Tickets();

  // Takes the request over. `on_admission` hears once, from any thread, what to
  // answer; the number is that of a ticket which is new.
  TicketNumber Submit(const Caller& caller, v1::SubmitRequest&& request,
                      TicketTable::OnAdmission on_admission);
  // Cancels one whose name nobody will get, and says why.
  void Abandon(TicketNumber number, const absl::Status& why);

  // As TicketTable::Wait(); longer than a duration can say is for ever.
  absl::StatusOr<WaiterId> Wait(std::string_view client, std::string_view ticket,
                                absl::Duration limit, TicketTable::OnWake on_wake);
  bool StopWaiting(WaiterId id) { return table_.StopWaiting(id); }
  // Whether it had no outcome yet.
  absl::StatusOr<bool> Cancel(std::string_view client, std::string_view ticket);
  void Forget(std::string_view client, std::string_view ticket) { table_.Forget(client, ticket); }

  // Ends every wait with Wake::kClosed.
  void Close() { table_.Close(); }
  // Ends what is under way with UNAVAILABLE, and returns when nothing is.
  void EndAll();

  TicketTable::Stats stats() const { return table_.stats(); }
  int64_t used_bytes() const { return bytes_->used_bytes(); }

 private:
  class Run;

  absl::Status Start(TicketNumber number, const Caller& caller, v1::SubmitRequest&& request);
  void Ended(const std::shared_ptr<Run>& run, const absl::Status& status);
  std::shared_ptr<Run> FindRun(TicketNumber number);
  absl::Duration Keep(double seconds) const;

  const ServiceContext& service_;
  const std::shared_ptr<ClientBytes> bytes_;
  TicketTable table_;
  std::mutex mutex_;
  std::condition_variable none_live_;
  int64_t live_ = 0;                                              // guarded by mutex_
  absl::flat_hash_map<TicketNumber, std::shared_ptr<Run>> runs_;  // guarded by mutex_
  StepAlarm alarm_;                                               // calls the table: goes first
};

// A length of time in a message.
absl::Status CheckSeconds(std::string_view field, double seconds);

}  // namespace tetrad
