// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/bars/rpc_figures.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "grpc/health/v1/health.grpc.pb.h"

#include "bench/bars/child_daemon.h"
#include "bench/bars/paired_ratio.h"
#include "clients/cpp/attachment.h"
#include "clients/cpp/channel.h"
#include "clients/cpp/client.h"
#include "clients/cpp/endpoint.h"
#include "engine/steady_clock.h"
#include "engine/support/status_macros.h"
#include "kernels/float16.h"

namespace tetrad::bars {
namespace {

constexpr int32_t kN = 128, kK = 128;  // G = 1, M = 1
constexpr int kBlocks = 20, kCalls = 250;

// Where the operands lie in the one block of the client.
constexpr int64_t kScalesOffset = 128, kOutputOffset = 256;
constexpr int64_t kCodeBytes = kK / 2, kScaleBytes = kK / 16, kOutputBytes = kN * 2;
constexpr int64_t kBlockBytes = kOutputOffset + kOutputBytes;
// Every code and scale is 1, so every output is K.
constexpr uint8_t kOneOne = 0x22, kScaleOne = 0x38;

double MicrosecondsSince(Instant begin) { return 1e-3 * static_cast<double>(SteadyNow() - begin); }

// The empty RPC on the same stack: the daemon's own health check, which looks up
// one flag and answers. Same server, socket and callback interface as Execute,
// and a channel made the same way.
class Echo {
 public:
  explicit Echo(const Endpoint& endpoint) : stub_(*MakeChannel(endpoint, ClientOptions{})) {}

  absl::StatusOr<double> Call() {
    const Instant begin = SteadyNow();
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
    grpc::health::v1::HealthCheckResponse response;
    const grpc::Status status = stub_.Check(&context, {}, &response);
    if (!status.ok()) return absl::UnavailableError(status.error_message());
    return MicrosecondsSince(begin);
  }

 private:
  grpc::health::v1::Health::Stub stub_;
};

// One prepared request with its operands in a block.
class BlockRequest {
 public:
  static absl::StatusOr<std::unique_ptr<BlockRequest>> Prepare(const std::string& endpoint);

  struct Times {
    double call_us = 0;
    double device_us = 0;
  };
  absl::StatusOr<Times> Call() {
    const Instant begin = SteadyNow();
    TETRAD_ASSIGN_OR_RETURN(const v1::ExecuteResponse response, client_->Execute(request_));
    return Times{.call_us = MicrosecondsSince(begin), .device_us = response.timings().device_us()};
  }
  absl::Status CheckOutput() {
    std::array<uint8_t, kOutputBytes> output;
    TETRAD_RETURN_IF_ERROR(client_->Read(block_, kOutputOffset, output));
    for (size_t at = 0; at < output.size(); at += 2) {
      uint16_t bits;
      std::memcpy(&bits, &output[at], sizeof(bits));
      if (bits != EncodeFp16(kK)) {
        return absl::DataLossError(absl::StrCat("column ", at / 2, " has bits ", bits));
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Place();
  v1::BlockRange Range(int64_t offset, int64_t bytes) const {
    v1::BlockRange range;
    range.set_block(block_);
    range.set_offset(offset);
    range.set_bytes(bytes);
    return range;
  }

  std::unique_ptr<Client> client_;
  std::unique_ptr<Attachment> attachment_;
  std::string block_;
  v1::ExecuteRequest request_;
};

absl::StatusOr<std::unique_ptr<BlockRequest>> BlockRequest::Prepare(const std::string& endpoint) {
  auto made = std::make_unique<BlockRequest>();
  TETRAD_ASSIGN_OR_RETURN(made->client_, Client::Connect(endpoint));
  TETRAD_RETURN_IF_ERROR(made->Place());
  return made;
}

absl::Status BlockRequest::Place() {
  v1::UploadHeader header;
  header.set_name("bars");
  header.set_scale_layout(v1::SCALE_LAYOUT_LINEAR);
  header.set_seal(true);
  header.add_groups()->set_n(kN);
  header.mutable_groups(0)->set_k(kK);
  const std::vector<uint8_t> codes(kN * kK / 2, kOneOne), scales(kN * kK / 16, kScaleOne);
  TETRAD_RETURN_IF_ERROR(client_->Upload(header, codes, scales).status());
  TETRAD_ASSIGN_OR_RETURN(attachment_, client_->Attach());
  TETRAD_ASSIGN_OR_RETURN(const v1::BlockInfo block,
                          client_->Allocate(attachment_->lease(), kBlockBytes));
  block_ = block.block();
  TETRAD_RETURN_IF_ERROR(client_->Write(block_, 0, std::vector<uint8_t>(kCodeBytes, kOneOne)));
  TETRAD_RETURN_IF_ERROR(
      client_->Write(block_, kScalesOffset, std::vector<uint8_t>(kScaleBytes, kScaleOne)));

  v1::PrepareRequest prepare;
  prepare.set_lease(attachment_->lease());
  v1::Signature& signature = *prepare.mutable_signature();
  signature.set_weights("bars");
  signature.set_activation_type(v1::ACTIVATION_TYPE_NVFP4);
  signature.set_activation_scale_layout(v1::SCALE_LAYOUT_LINEAR);
  signature.set_output_type(v1::OUTPUT_TYPE_FP16);
  signature.mutable_exact()->add_m(1);
  TETRAD_ASSIGN_OR_RETURN(const v1::PrepareResponse plan, client_->Prepare(prepare));
  request_.set_plan(plan.plan());
  v1::BlockOperands& operands = *request_.mutable_block_operands();
  *operands.mutable_activations() = Range(0, kCodeBytes);
  *operands.mutable_activation_scales() = Range(kScalesOffset, kScaleBytes);
  *operands.mutable_output() = Range(kOutputOffset, kOutputBytes);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Measured> RpcUnaryRatio(const Setting& setting) {
  const std::string device = setting.device == DeviceKind::kCpu ? "cpu" : "cuda:" + setting.uuid;
  TETRAD_ASSIGN_OR_RETURN(const auto daemon,
                          ChildDaemon::Start(setting.programs + "/tetradd", {"--device", device}));
  TETRAD_ASSIGN_OR_RETURN(const Endpoint endpoint, ParseEndpoint(daemon->endpoint()));
  Echo echo(endpoint);
  TETRAD_ASSIGN_OR_RETURN(const auto request, BlockRequest::Prepare(daemon->endpoint()));

  PairedRatio ratio;
  for (int block = -2; block < kBlocks; ++block) {  // the first two warm up
    std::vector<double> ours, device_us, theirs;
    for (int i = 0; i < kCalls; ++i) {
      TETRAD_ASSIGN_OR_RETURN(const BlockRequest::Times times, request->Call());
      ours.push_back(times.call_us);
      device_us.push_back(times.device_us);
    }
    const double on_device = Median(std::move(device_us));
    for (int i = 0; i < kCalls; ++i) {
      TETRAD_ASSIGN_OR_RETURN(const double echo_us, echo.Call());
      theirs.push_back(echo_us + on_device);
    }
    if (block >= 0) ratio.Add(ours, theirs);
  }
  TETRAD_RETURN_IF_ERROR(request->CheckOutput());
  Measured measured = ratio.Finish();
  measured.remark = absl::StrCat("p50 ", ratio.ours(), " us over ", ratio.theirs(),
                                 " us of empty RPC and device");
  std::fprintf(stderr, "tetrad-bars: main.rpc.unary_ratio: %s\n", measured.remark.c_str());
  return measured;
}

}  // namespace tetrad::bars
