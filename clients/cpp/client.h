// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// A connection to one Tetrad daemon: every RPC as a blocking call that returns
// absl::Status or StatusOr. No call can hang: each has a deadline, and each
// can be stopped from another thread through CallOptions::cancel.
//
// Thread-safe: calls of one Client may overlap and share its connection.
// Failures carry the daemon's code and message unchanged (status_mapping.h);
// UNAVAILABLE additionally names the endpoint. A connection that breaks is
// re-established. Calls that fail for want of one, or that the daemon asks to
// send later, are repeated within their deadline where that is safe; what is
// safe is a table in retry.cc, what a caller may rely on in docs/cpp-client.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tetrad/v1/admin.pb.h"
#include "tetrad/v1/gemm.pb.h"
#include "tetrad/v1/memory.pb.h"
#include "tetrad/v1/status.pb.h"
#include "tetrad/v1/weights.pb.h"

namespace tetrad {

class Attachment;
class ExecuteStream;

// Files in PEM form. They are read by Connect(); a client that is to show others
// connects anew.
struct TlsOptions {
  std::string root_certificates_file = {};  // empty: those of the system
  std::string certificate_file = {};        // of this client, with its key_file
  std::string key_file = {};
  std::string server_name = {};  // in the daemon's certificate; empty: the endpoint's host
};

struct ClientOptions {
  absl::Duration connect_timeout = absl::Seconds(5);
  absl::Duration deadline = absl::Seconds(60);           // of calls without bulk transfer
  absl::Duration transfer_deadline = absl::Minutes(30);  // of Upload, Load, Write and Read
  int64_t max_message_bytes = int64_t{1} << 30;          // sent or received; at most 2^31 - 1
  int attempts = 4;                                      // of a call that may be repeated
  std::optional<TlsOptions> tls = {};  // of TCP; a Unix socket is spoken to plainly
  // Who this is, sent with every call; one of the two, or none. The file is read
  // again when the daemon refuses what was in it, and the call made again; of
  // Upload, Write and ExecuteStream the next one shows it. Not sent over plain TCP
  // to another machine.
  std::string token = {};
  std::string token_file = {};
  // How long Upload and Write try to go on while the daemon takes nothing.
  absl::Duration resume_patience = absl::Minutes(1);
};

struct CallOptions {
  absl::Duration deadline = absl::ZeroDuration();  // zero: the client's
  std::stop_token cancel;                          // stop request: the call ends CANCELLED
  // W3C Trace Context: the span this call is part of, for the daemon's log. What
  // is not of that form is not sent.
  std::string traceparent = {};
  // Upload and Write: after UNAVAILABLE they go on with what is missing, until the
  // deadline or resume_patience is over. Other codes end them at once.
  bool resume = true;
};

class Client {
 public:
  // Called on the calling thread, with bytes that only grow. Must not throw.
  using Progress = std::function<void(int64_t bytes_done, int64_t bytes_total)>;

  // Connects to `unix:PATH` or `HOST:PORT` and waits until the daemon answers.
  // INVALID_ARGUMENT: malformed endpoint. NOT_FOUND, FAILED_PRECONDITION,
  // PERMISSION_DENIED: nothing, no socket, or not our socket at a Unix path.
  // UNAVAILABLE: nobody answers. Of a file that options name: the system's error.
  // FAILED_PRECONDITION: the token would travel in the clear.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(std::string_view endpoint,
                                                         const ClientOptions& options = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  absl::StatusOr<v1::GetStatusResponse> GetStatus(const CallOptions& call = {});

  // Streams both operands of new weights, in the layouts of weights.proto.
  // The spans must stay valid during the call. An upload that broke off goes on
  // with what is missing, or begins anew if the daemon knows nothing of it, e.g.
  // after a restart. The daemon keeps what an UNAVAILABLE one sent for its
  // upload_keep_seconds; any other failure leaves nothing behind, if the daemon can
  // be told. With an upload_key in the header, what an earlier call with the same
  // header sent is not sent again, and a failed upload stays as it is.
  absl::StatusOr<v1::WeightsInfo> Upload(const v1::UploadHeader& header,
                                         std::span<const uint8_t> codes,
                                         std::span<const uint8_t> scales,
                                         const Progress& progress = nullptr,
                                         const CallOptions& call = {});
  // The last message of the stream: the weights and the loader's notes.
  absl::StatusOr<v1::LoadProgress> Load(const v1::LoadRequest& request,
                                        const Progress& progress = nullptr,
                                        const CallOptions& call = {});
  absl::StatusOr<v1::WeightsInfo> Seal(const std::string& name, int64_t version,
                                       const CallOptions& call = {});
  absl::StatusOr<v1::ListWeightsResponse> ListWeights(const CallOptions& call = {});
  // `weights` is `name@version`, or `name` for all its versions; how many were dropped.
  absl::StatusOr<int> Drop(const std::string& weights, const CallOptions& call = {});

  absl::StatusOr<v1::PrepareResponse> Prepare(const v1::Signature& signature,
                                              const CallOptions& call = {});
  // With a lease, which the handle then belongs to.
  absl::StatusOr<v1::PrepareResponse> Prepare(const v1::PrepareRequest& request,
                                              const CallOptions& call = {});
  absl::StatusOr<v1::ExecuteResponse> Execute(const v1::ExecuteRequest& request,
                                              const CallOptions& call = {});
  absl::Status Release(const std::string& plan, const CallOptions& call = {});
  // Many requests under way at once (execute_stream.h). The deadline is that of
  // the whole stream; zero: the one for transfers.
  std::unique_ptr<ExecuteStream> OpenExecuteStream(const CallOptions& call = {});

  // A request that outlives this call and the connection; the ticket is the way
  // to its outcome (docs/tickets.md). With an idempotency key it may be submitted
  // again, and runs once.
  absl::StatusOr<v1::SubmitResponse> Submit(const v1::SubmitRequest& request,
                                            const CallOptions& call = {});
  // `done` says whether the outcome is in the answer: the response, or the code
  // and message of a failed Execute. A status that is not OK is about the wait,
  // and leaves the ticket as it is. A deadline of zero is the client's beyond
  // the request's own time to wait.
  absl::StatusOr<v1::WaitResponse> Wait(const v1::WaitRequest& request,
                                        const CallOptions& call = {});
  // Blocks until all tickets are done; `tell` is called on this thread for each.
  // The deadline is that of the whole watch; zero: the one for transfers.
  absl::Status Watch(std::span<const std::string> tickets,
                     const std::function<void(const v1::TicketEvent&)>& tell,
                     const CallOptions& call = {});
  // False: its outcome was there already, and stays. Otherwise it is CANCELLED.
  absl::StatusOr<bool> Cancel(const std::string& ticket, const CallOptions& call = {});

  // A lease, held as long as the result lives (attachment.h); with `resume` one
  // whose grace time runs. The deadline is that of getting it.
  absl::StatusOr<std::unique_ptr<Attachment>> Attach(const std::string& resume = {},
                                                     const CallOptions& call = {});
  // Ends a lease without a grace time.
  absl::Status Detach(const std::string& lease, const CallOptions& call = {});
  // Zeroed device memory.
  absl::StatusOr<v1::BlockInfo> Allocate(const std::string& lease, int64_t bytes,
                                         const CallOptions& call = {});
  // On failure a part may have been written. Goes on after a broken connection; a
  // block that went with its lease or its daemon is ABORTED or NOT_FOUND.
  absl::Status Write(const std::string& block, int64_t offset, std::span<const uint8_t> data,
                     const CallOptions& call = {});
  // Fills `out`.
  absl::Status Read(const std::string& block, int64_t offset, std::span<uint8_t> out,
                    const CallOptions& call = {});
  absl::Status Free(const std::string& block, const CallOptions& call = {});
  absl::StatusOr<v1::ListBlocksResponse> ListBlocks(const std::string& lease,
                                                    const CallOptions& call = {});

  // Of tetrad.v1.Admin, for operators. What SetLogLevel returns is the level
  // before, what EndLease returns whose lease it was.
  absl::StatusOr<v1::DrainResponse> Drain(const CallOptions& call = {});
  absl::StatusOr<std::string> SetLogLevel(const std::string& level, const CallOptions& call = {});
  absl::StatusOr<std::string> EndLease(const std::string& lease, const CallOptions& call = {});

  const std::string& endpoint() const;
  // Calls that were made again, so far.
  int64_t retries() const;

 private:
  friend class Attachment;
  friend class ExecuteStream;
  struct Connection;
  explicit Client(std::shared_ptr<Connection> connection);
  const std::shared_ptr<Connection> connection_;
};

}  // namespace tetrad
