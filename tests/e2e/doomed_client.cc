// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// A client process for tests to kill: doomed_client ADDRESS MODE [WEIGHTS]
//
//   hold     attaches, allocates a block, prepares a plan under the lease
//   write    and writes to the block without end
//   stream   and keeps an ExecuteStream full, reading no answer
//   submit   and submits the request of that stream once
//
// Prints the name of the lease, or of the ticket, in a line when it is in the
// middle of that.
// Ends only with a signal.
#include <cstdio>
#include <string>
#include <thread>

#include <unistd.h>

#include "grpcpp/client_context.h"

#include "tests/e2e/memory_client.h"

namespace tetrad::e2e {
namespace {

constexpr int64_t kBlockBytes = 8 << 20;

[[noreturn]] void WaitForTheEnd() {
  for (;;) ::pause();
}

void Announce(const std::string& lease) {
  std::printf("%s\n", lease.c_str());
  std::fflush(stdout);
}

[[noreturn]] void WriteForEver(const Stubs& stubs, const std::string& lease,
                               const std::string& block) {
  for (bool told = false;;) {
    grpc::ClientContext context;
    v1::WriteResponse response;
    const auto writer = stubs.memory->Write(&context, &response);
    v1::WriteRequest message;
    message.set_block(block);
    message.set_data(std::string(kBlockBytes / 64, 'x'));
    for (int i = 0; i < 64 && writer->Write(message); ++i) {
      message.clear_block();
      if (!std::exchange(told, true)) Announce(lease);
    }
    writer->WritesDone();
    writer->Finish();
  }
}

[[noreturn]] void StreamForEver(const Stubs& stubs, const std::string& lease,
                                const v1::ExecuteRequest& request) {
  grpc::ClientContext context;
  const auto stream = stubs.gemm->ExecuteStream(&context);
  v1::ExecuteStreamRequest message;
  *message.mutable_execute() = request;
  for (uint64_t id = 0; stream->Write(message); ++id) {
    message.set_id(id + 1);
    if (id == 8) Announce(lease);
  }
  WaitForTheEnd();
}

int Main(const std::string& address, const std::string& mode, const std::string& weights) {
  const auto client = ConnectClient(address);
  if (client == nullptr) return 1;
  const auto attachment = client->Attach();
  if (!attachment.ok()) return 1;
  const std::string lease = (*attachment)->lease();
  const auto block = client->Allocate(lease, kBlockBytes);
  v1::PrepareRequest prepare;
  v1::Signature& signature = *prepare.mutable_signature();
  signature.set_weights(weights);
  signature.set_activation_type(v1::ACTIVATION_TYPE_FP16);
  signature.set_output_type(v1::OUTPUT_TYPE_FP32);
  signature.mutable_exact()->add_m(256);
  prepare.set_lease(lease);
  const auto prepared = client->Prepare(prepare);
  if (!block.ok() || !prepared.ok()) return 1;
  const Stubs stubs(Connect(address));
  if (mode == "write") WriteForEver(stubs, lease, block->block());
  v1::SubmitRequest submit;
  v1::ExecuteRequest& request = *submit.mutable_execute();
  request.set_plan(prepared->plan());
  request.mutable_inline_operands()->mutable_activations()->resize(
      static_cast<size_t>(prepared->info().activation_bytes()));
  if (mode == "stream") StreamForEver(stubs, lease, request);
  if (mode == "submit") {
    const auto submitted = client->Submit(submit);
    if (!submitted.ok()) return 1;
    Announce(submitted->ticket());
    WaitForTheEnd();
  }
  Announce(lease);
  WaitForTheEnd();
}

}  // namespace
}  // namespace tetrad::e2e

int main(int argc, char** argv) {
  return argc == 4 ? tetrad::e2e::Main(argv[1], argv[2], argv[3]) : 2;
}
