// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// BlockRequest: the smallest request there is (G = 1, M = 1, N = 128, K = 128,
// NVFP4), prepared once at a daemon, its operands in a block of a lease of its
// own: what the figures of the service send. There are kOutputs of it that
// differ in where the output goes, so that many can be under way.
//
// For one thread; client() and message() for several.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tetrad/v1/gemm.pb.h"

#include "clients/cpp/attachment.h"
#include "clients/cpp/client.h"

namespace tetrad::bars {

class BlockRequest {
 public:
  static constexpr int kOutputs = 64;

  // Connects to `endpoint`, and registers weights as "bars".
  static absl::StatusOr<std::unique_ptr<BlockRequest>> Prepare(const std::string& endpoint);

  Client& client() { return *client_; }
  const v1::ExecuteRequest& message(size_t output) const { return messages_[output]; }
  // DATA_LOSS unless the outputs of the first `outputs` messages are right.
  absl::Status CheckOutputs(int outputs);

 private:
  absl::Status Place();
  v1::BlockRange Range(int64_t offset, int64_t bytes) const;

  std::unique_ptr<Client> client_;
  std::unique_ptr<Attachment> attachment_;
  std::string block_;
  std::vector<v1::ExecuteRequest> messages_;
};

}  // namespace tetrad::bars
