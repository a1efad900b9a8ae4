// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Leases, blocks and requests with operands in them, for tests.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "clients/cpp/attachment.h"
#include "clients/cpp/client.h"
#include "tests/e2e/gemm_client.h"

namespace tetrad::e2e {

// A failure fails the test.
std::unique_ptr<Client> ConnectClient(const std::string& address);
std::unique_ptr<Attachment> AttachTo(Client& client, const std::string& resume = {});

// True once the condition holds; false if it still does not after a minute.
bool Eventually(const std::function<bool()>& condition);

// What clients hold in a daemon, as text to compare: leases, blocks, handles,
// launches and the bytes of calls under way. Without what caches keep.
std::string Held(const Daemon& daemon, Client& client);
// The value of a sample of the metrics page; -1 if it is not there.
double Metric(const Daemon& daemon, std::string_view sample);

// The operands of a request in one block of a lease, parts and groups at
// multiples of 128 bytes, the rest filled with a pattern.
class PlacedOperands {
 public:
  PlacedOperands(Client& client, const Operands& operands, const std::string& weights,
                 const std::string& lease);

  // Ranges can be changed by the test.
  v1::ExecuteRequest request;
  std::string block;
  int64_t block_bytes = 0;

  // Reads the output; all elements and gaps between groups are compared.
  void Verify(Client& client);
  // The bytes of the output without gaps, as an inline request has them.
  std::string Output(Client& client);
  // Puts the pattern into the output again.
  void Clear(Client& client);

 private:
  const Operands& operands_;
  int64_t output_bytes_ = 0;
};

}  // namespace tetrad::e2e
