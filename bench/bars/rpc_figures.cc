// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/bars/rpc_figures.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <numeric>
#include <optional>
#include <semaphore>
#include <thread>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "grpc/health/v1/health.grpc.pb.h"

#include "bench/bars/block_request.h"
#include "bench/bars/child_daemon.h"
#include "bench/bars/paired_ratio.h"
#include "clients/cpp/channel.h"
#include "clients/cpp/endpoint.h"
#include "clients/cpp/execute_stream.h"
#include "engine/steady_clock.h"
#include "engine/support/status_macros.h"

namespace tetrad::bars {
namespace {

constexpr int kBlocks = 20, kCalls = 250;
constexpr int kStreamCalls = 4000;  // of a block, so that filling and emptying the stream is little

double MicrosecondsSince(Instant begin) { return 1e-3 * static_cast<double>(SteadyNow() - begin); }

// The empty RPC on the same stack: the daemon's own health check, which looks up
// one flag and answers. Same server, socket and callback interface as Execute,
// and a channel made the same way.
class Echo {
 public:
  explicit Echo(const Endpoint& endpoint) : stub_(MakeChannel(endpoint, ClientOptions{}).value()) {}

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

absl::StatusOr<std::unique_ptr<ChildDaemon>> StartDaemon(const Setting& setting) {
  const std::string device = setting.device == DeviceKind::kCpu ? "cpu" : "cuda:" + setting.uuid;
  return ChildDaemon::Start(setting.programs + "/tetradd", {"--device", device});
}

// Numbers from one thread to another, as many as outputs: those that are free.
class FreeOutputs {
 public:
  FreeOutputs() { std::iota(numbers_.begin(), numbers_.end(), size_t{0}); }
  // Waits for one; nothing after Close().
  std::optional<size_t> Take() {
    there_.acquire();
    if (closed_.load()) return std::nullopt;
    return numbers_[taken_++ % kSize];
  }
  void Return(size_t number) {
    numbers_[returned_++ % kSize] = number;
    there_.release();
  }
  // None will be returned any more, by the thread that did.
  void Close() {
    closed_.store(true);
    there_.release();
  }

 private:
  static constexpr size_t kSize = BlockRequest::kOutputs;
  std::array<size_t, kSize> numbers_;
  size_t taken_ = 0, returned_ = 0;  // each of one thread
  std::atomic<bool> closed_{false};
  std::counting_semaphore<kSize + 1> there_{kSize};
};

// Requests a second of a stream with BlockRequest::kOutputs under way: one thread
// submits and another takes answers, as clients do that want throughput.
absl::StatusOr<double> StreamRate(BlockRequest& request) {
  const std::unique_ptr<ExecuteStream> stream = request.client().OpenExecuteStream();
  FreeOutputs outputs;
  absl::Status failure;  // of the reader
  const Instant begin = SteadyNow();
  {
    const std::jthread reader([&] {
      for (;;) {
        const std::optional<v1::ExecuteStreamResponse> answer = stream->Next();
        if (!answer.has_value()) return outputs.Close();  // the end, or Finish() says why
        if (answer->code() != 0 && failure.ok()) failure = absl::InternalError(answer->message());
        outputs.Return(answer->id());
      }
    });
    for (int i = 0; i < kStreamCalls; ++i) {
      const std::optional<size_t> output = outputs.Take();
      if (!output.has_value() || !stream->Submit(*output, request.message(*output))) break;
    }
    stream->Close();
  }
  const double seconds = 1e-6 * MicrosecondsSince(begin);
  TETRAD_RETURN_IF_ERROR(failure);
  TETRAD_RETURN_IF_ERROR(stream->Finish());
  return kStreamCalls / seconds;
}

absl::StatusOr<double> UnaryRate(BlockRequest& request) {
  const Instant begin = SteadyNow();
  for (int i = 0; i < kCalls; ++i) {
    TETRAD_RETURN_IF_ERROR(request.client().Execute(request.message(0)).status());
  }
  return kCalls / (1e-6 * MicrosecondsSince(begin));
}

}  // namespace

absl::StatusOr<Measured> RpcUnaryRatio(const Setting& setting) {
  TETRAD_ASSIGN_OR_RETURN(const auto daemon, StartDaemon(setting));
  TETRAD_ASSIGN_OR_RETURN(const Endpoint endpoint, ParseEndpoint(daemon->endpoint()));
  Echo echo(endpoint);
  TETRAD_ASSIGN_OR_RETURN(const auto request, BlockRequest::Prepare(daemon->endpoint()));

  PairedRatio ratio;
  for (int block = -2; block < kBlocks; ++block) {  // the first two warm up
    std::vector<double> ours, device_us, theirs;
    for (int i = 0; i < kCalls; ++i) {
      const Instant begin = SteadyNow();
      TETRAD_ASSIGN_OR_RETURN(const v1::ExecuteResponse response,
                              request->client().Execute(request->message(0)));
      ours.push_back(MicrosecondsSince(begin));
      device_us.push_back(response.timings().device_us());
    }
    const double on_device = Median(std::move(device_us));
    for (int i = 0; i < kCalls; ++i) {
      TETRAD_ASSIGN_OR_RETURN(const double echo_us, echo.Call());
      theirs.push_back(echo_us + on_device);
    }
    if (block >= 0) ratio.Add(ours, theirs);
  }
  TETRAD_RETURN_IF_ERROR(request->CheckOutputs(1));
  Measured measured = ratio.Finish();
  measured.remark = absl::StrCat("p50 ", ratio.ours(), " us over ", ratio.theirs(),
                                 " us of empty RPC and device");
  std::fprintf(stderr, "tetrad-bars: main.rpc.unary_ratio: %s\n", measured.remark.c_str());
  return measured;
}

absl::StatusOr<Measured> RpcStreamRatio(const Setting& setting) {
  TETRAD_ASSIGN_OR_RETURN(const auto daemon, StartDaemon(setting));
  TETRAD_ASSIGN_OR_RETURN(const auto request, BlockRequest::Prepare(daemon->endpoint()));
  PairedRatio ratio;
  for (int block = -2; block < kBlocks; ++block) {  // the first two warm up
    TETRAD_ASSIGN_OR_RETURN(const double stream, StreamRate(*request));
    TETRAD_ASSIGN_OR_RETURN(const double unary, UnaryRate(*request));
    if (block >= 0) ratio.Add({stream}, {unary});
  }
  TETRAD_RETURN_IF_ERROR(request->CheckOutputs(BlockRequest::kOutputs));
  Measured measured = ratio.Finish();
  measured.remark = absl::StrCat(ratio.ours(), " requests a second over ", ratio.theirs());
  std::fprintf(stderr, "tetrad-bars: service.rpc.stream_ratio: %s\n", measured.remark.c_str());
  return measured;
}

}  // namespace tetrad::bars
