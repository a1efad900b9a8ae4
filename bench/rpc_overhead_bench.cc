// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What a running daemon adds to an RPC: a unary Execute with block references
// (one group, one row, N = K = 128) beside an RPC that does nothing, the health
// check, on the same connection with one request under way.
//
//   rpc_overhead_bench unix:PATH|HOST:PORT [SECONDS [PAUSE_US]]
//
// The two alternate in turns of a hundred, so that both see the same machine.
// With PAUSE_US the client waits between requests, which shows what sleeping
// threads cost. One JSON line: medians and 90th percentiles in microseconds, the
// daemon's own times, and the ratio of Execute to the check plus device time.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "grpc/health/v1/health.grpc.pb.h"
#include "tetrad/v1/gemm.grpc.pb.h"

#include "clients/cpp/attachment.h"
#include "clients/cpp/client.h"
#include "clients/cpp/endpoint.h"

namespace tetrad {
namespace {

using Steady = std::chrono::steady_clock;
constexpr char kWeights[] = "rpc-overhead-bench";
constexpr int32_t kN = 128, kK = 128;
constexpr int kTurn = 100;

template <typename T>
T Must(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "rpc_overhead_bench: %s\n", result.status().ToString().c_str());
  std::exit(1);
}

struct Times {
  std::vector<double> us;
  double at(double share) {
    std::sort(us.begin(), us.end());
    return us[static_cast<size_t>(share * static_cast<double>(us.size() - 1))];
  }
};

// Weights, a plan, and blocks with codes and scales of value 1.
class Placed {
 public:
  explicit Placed(Client& client) : client_(client), attachment_(Must(client.Attach())) {
    v1::UploadHeader header;
    header.set_name(kWeights);
    v1::GroupDims& dims = *header.add_groups();
    dims.set_n(kN);
    dims.set_k(kK);
    header.set_seal(true);
    const std::vector<uint8_t> codes(kN * kK / 2, 0x22), scales(kN * kK / 16, 0x38);
    v1::PrepareRequest prepare;
    v1::Signature& signature = *prepare.mutable_signature();
    signature.set_weights(Must(client.Upload(header, codes, scales)).name());
    signature.set_activation_type(v1::ACTIVATION_TYPE_NVFP4);
    signature.set_output_type(v1::OUTPUT_TYPE_FP16);
    signature.mutable_exact()->add_m(1);
    prepare.set_lease(attachment_->lease());
    const v1::PrepareResponse plan = Must(client.Prepare(prepare));
    request_.set_plan(plan.plan());
    v1::BlockOperands& operands = *request_.mutable_block_operands();
    Place(*operands.mutable_activations(), plan.info().activation_block_bytes(), 0x22);
    Place(*operands.mutable_activation_scales(), plan.info().activation_scale_block_bytes(), 0x38);
    Place(*operands.mutable_output(), plan.info().output_block_bytes(), 0);
  }
  const v1::ExecuteRequest& request() const { return request_; }
  // Each element is K, in FP16 0x5800 for 128.
  bool Correct() {
    std::vector<uint8_t> row(kN * 2);
    const v1::BlockRange& output = request_.block_operands().output();
    if (!client_.Read(output.block(), 0, row).ok()) return false;
    for (size_t i = 0; i < row.size(); i += 2) {
      if (row[i] != 0x00 || row[i + 1] != 0x58) return false;
    }
    return true;
  }

 private:
  void Place(v1::BlockRange& range, int64_t bytes, uint8_t value) {
    range.set_block(Must(client_.Allocate(attachment_->lease(), bytes)).block());
    range.set_bytes(bytes);
    const std::vector<uint8_t> data(static_cast<size_t>(bytes), value);
    const absl::Status written = client_.Write(range.block(), 0, data);
    if (!written.ok()) Must(absl::StatusOr<int>(written));
  }

  Client& client_;
  const std::unique_ptr<Attachment> attachment_;
  v1::ExecuteRequest request_;
};

template <typename Call>
void Turn(Times& times, std::chrono::microseconds pause, Call call) {
  for (int i = 0; i < kTurn; ++i) {
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
    grpc::ClientContext context;
    const Steady::time_point began = Steady::now();
    const grpc::Status status = call(context);
    const std::chrono::duration<double, std::micro> took = Steady::now() - began;
    if (!status.ok()) Must(absl::StatusOr<int>(absl::InternalError(status.error_message())));
    times.us.push_back(took.count());
  }
}

int Main(const std::string& endpoint, double seconds, std::chrono::microseconds pause) {
  const std::unique_ptr<Client> client = Must(Client::Connect(endpoint));
  Placed placed(*client);
  const auto channel = grpc::CreateChannel(Must(ParseEndpoint(endpoint)).GrpcTarget(),
                                           grpc::InsecureChannelCredentials());
  const auto health = grpc::health::v1::Health::NewStub(channel);
  const auto gemm = v1::Gemm::NewStub(channel);
  Times check, execute, device, queued, launch, total;
  const Steady::time_point began = Steady::now();
  for (int turn = 0; std::chrono::duration<double>(Steady::now() - began).count() < seconds;
       ++turn) {
    if (turn == 1) {  // the first warms up
      for (Times* times : {&check, &execute, &device, &queued, &launch, &total}) times->us.clear();
    }
    Turn(check, pause, [&](grpc::ClientContext& context) {
      grpc::health::v1::HealthCheckResponse response;
      return health->Check(&context, {}, &response);
    });
    Turn(execute, pause, [&](grpc::ClientContext& context) {
      v1::ExecuteResponse response;
      const grpc::Status status = gemm->Execute(&context, placed.request(), &response);
      device.us.push_back(response.timings().device_us());
      queued.us.push_back(response.timings().queued_us());
      launch.us.push_back(response.timings().launch_us());
      total.us.push_back(response.timings().total_us());
      return status;
    });
  }
  const bool correct = placed.Correct() && client->Drop(kWeights).ok();
  const double device_us = device.at(0.5);
  std::printf(
      "{\"requests\": %zu, \"pause_us\": %lld, \"check_us\": %.2f, \"check_p90_us\": %.2f, "
      "\"execute_us\": %.2f, \"execute_p90_us\": %.2f, \"queued_us\": %.2f, \"launch_us\": %.2f, "
      "\"device_us\": %.2f, \"total_us\": %.2f, \"ratio\": %.3f, \"correct\": %s}\n",
      execute.us.size(), static_cast<long long>(pause.count()), check.at(0.5), check.at(0.9),
      execute.at(0.5), execute.at(0.9), queued.at(0.5), launch.at(0.5), device_us, total.at(0.5),
      execute.at(0.5) / (check.at(0.5) + device_us), correct ? "true" : "false");
  return correct ? 0 : 1;
}

}  // namespace
}  // namespace tetrad

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: rpc_overhead_bench unix:PATH|HOST:PORT [SECONDS [PAUSE_US]]\n");
    return 64;
  }
  return tetrad::Main(argv[1], argc > 2 ? std::atof(argv[2]) : 5,
                      std::chrono::microseconds(argc > 3 ? std::atoi(argv[3]) : 0));
}
