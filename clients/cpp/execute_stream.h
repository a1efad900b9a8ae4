// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// ExecuteStream: many Execute requests under way at once, answered in the order
// in which they end. What goes wrong with one is told in its answer; the stream
// itself ends only when it cannot go on.
//
// One thread may submit and cancel while another takes answers; otherwise not
// thread-safe. Beyond the daemon's limit of requests under way Submit() blocks
// until answers are taken, so a single thread must stay below it. Whatever the
// destructor finds under way is cancelled.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tetrad/v1/gemm.pb.h"

#include "clients/cpp/client.h"

namespace tetrad {

class ExecuteStream {
 public:
  ~ExecuteStream();
  ExecuteStream(const ExecuteStream&) = delete;
  ExecuteStream& operator=(const ExecuteStream&) = delete;

  // `id` is the caller's, and not that of a request under way. False if the
  // stream has ended: Finish() says why.
  bool Submit(uint64_t id, const v1::ExecuteRequest& request,
              absl::Duration timeout = absl::ZeroDuration());
  // Its answer comes soon, with CANCELLED unless its result was there already.
  bool Cancel(uint64_t id);
  // No more requests; answers still come.
  void Close();

  // Nothing after the last one, or when the stream has ended.
  std::optional<v1::ExecuteStreamResponse> Next();
  // How the stream ended, once Next() gave nothing; cancels it otherwise.
  absl::Status Finish();

 private:
  friend class Client;
  class Stream;
  explicit ExecuteStream(std::unique_ptr<Stream> stream);
  const std::unique_ptr<Stream> stream_;
};

}  // namespace tetrad
