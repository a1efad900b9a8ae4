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
// re-established by the next call.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tetrad/v1/gemm.pb.h"
#include "tetrad/v1/status.pb.h"
#include "tetrad/v1/weights.pb.h"

namespace tetrad {

struct ClientOptions {
  absl::Duration connect_timeout = absl::Seconds(5);
  absl::Duration deadline = absl::Seconds(60);           // of calls without bulk transfer
  absl::Duration transfer_deadline = absl::Minutes(30);  // of Upload and Load
  int64_t max_message_bytes = int64_t{1} << 30;          // sent or received; at most 2^31 - 1
};

struct CallOptions {
  absl::Duration deadline = absl::ZeroDuration();  // zero: the client's
  std::stop_token cancel;                          // stop request: the call ends CANCELLED
};

class Client {
 public:
  // Called on the calling thread, with bytes that only grow.
  using Progress = std::function<void(int64_t bytes_done, int64_t bytes_total)>;

  // Connects to `unix:PATH` or `HOST:PORT` and waits until the daemon answers.
  // INVALID_ARGUMENT: malformed endpoint. NOT_FOUND, FAILED_PRECONDITION,
  // PERMISSION_DENIED: nothing, no socket, or not our socket at a Unix path.
  // UNAVAILABLE: nobody answers.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(std::string_view endpoint,
                                                         const ClientOptions& options = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  absl::StatusOr<v1::GetStatusResponse> GetStatus(const CallOptions& call = {});

  // Streams both operands of new weights, in the layouts of weights.proto.
  // The spans must stay valid during the call. A failed upload leaves nothing
  // behind in the daemon.
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
  absl::StatusOr<v1::ExecuteResponse> Execute(const v1::ExecuteRequest& request,
                                              const CallOptions& call = {});
  absl::Status Release(const std::string& plan, const CallOptions& call = {});

  const std::string& endpoint() const;

 private:
  struct Connection;
  explicit Client(std::unique_ptr<Connection> connection);
  const std::unique_ptr<Connection> connection_;
};

}  // namespace tetrad
