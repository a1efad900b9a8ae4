// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Clients that make the daemon hold memory without ever finishing a request:
// what it holds is bounded, and others are served.
#include <cstring>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "grpcpp/client_context.h"

#include "engine/support/unique_fd.h"
#include "tests/e2e/gemm_client.h"

namespace tetrad::e2e {
namespace {

constexpr size_t kMiB = 1 << 20;

// A gRPC call whose one message never ends. The RPC library cannot do that, so
// this speaks just enough HTTP/2 (RFC 9113) itself.
class StalledCall {
 public:
  explicit StalledCall(const std::string& address)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + address.rfind(':') + 1)));
    open_ = ::connect(socket_.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
    Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    Frame(kSettings, 0, 0, "");
    const std::string path = "/tetrad.v1.Gemm/Execute";
    Frame(kHeaders, kEndHeaders, 1,
          absl::StrCat("\x83\x86\x04", Text(path), "\x01", Text("localhost"),
                       absl::string_view("\0", 1), Text("content-type"), Text("application/grpc"),
                       absl::string_view("\0", 1), Text("te"), Text("trailers")));
  }

  // A whole message, whose reply is then never read: this side grants the
  // daemon the 64 KiB that HTTP/2 starts with.
  void Ask(const v1::ExecuteRequest& request) {
    const std::string message = request.SerializeAsString();
    std::string prefix(5, '\0');
    const uint32_t size = htonl(static_cast<uint32_t>(message.size()));
    std::memcpy(prefix.data() + 1, &size, sizeof(size));
    Data(prefix);
    for (size_t at = 0; at < message.size(); at += kFrameBytes) {
      Data(message.substr(at, kFrameBytes));
    }
    Frame(kDataType, kEndStream, 1, "");
  }

  // The first `bytes` of a message of `message_bytes`, as far as the daemon
  // lets them in.
  void Send(size_t bytes, uint32_t message_bytes) {
    std::string prefix(5, '\0');
    const uint32_t size = htonl(message_bytes);
    std::memcpy(prefix.data() + 1, &size, sizeof(size));
    Data(prefix);
    const std::string block(kFrameBytes, '\0');
    for (size_t sent = 0; open_ && sent < bytes; sent += block.size()) Data(block);
  }

 private:
  static constexpr uint8_t kDataType = 0, kHeaders = 1, kReset = 3, kSettings = 4, kGoAway = 7,
                           kWindowUpdate = 8, kEndHeaders = 4, kEndStream = 1, kAck = 1;
  static constexpr size_t kFrameBytes = 16 << 10;

  static std::string Text(const std::string& text) { return static_cast<char>(text.size()) + text; }
  static uint32_t Number(const char* bytes) {
    uint32_t number;
    std::memcpy(&number, bytes, sizeof(number));
    return ntohl(number);
  }

  void Send(const std::string& bytes) {
    for (size_t sent = 0; open_ && sent < bytes.size();) {
      const ssize_t size =
          ::send(socket_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      open_ = size > 0;
      sent += open_ ? static_cast<size_t>(size) : 0;
    }
  }
  void Frame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload) {
    std::string frame(9, '\0');
    const uint32_t head[] = {htonl(static_cast<uint32_t>(payload.size() << 8 | type)),
                             htonl(stream)};
    std::memcpy(frame.data(), &head[0], 4);
    frame[4] = static_cast<char>(flags);
    std::memcpy(frame.data() + 5, &head[1], 4);
    Send(frame + payload);
  }
  void Data(const std::string& payload) {
    const auto bytes = static_cast<int64_t>(payload.size());
    while (open_ && (stream_window_ < bytes || connection_window_ < bytes)) open_ = Receive();
    Frame(kDataType, 0, 1, payload);
    stream_window_ -= bytes;
    connection_window_ -= bytes;
  }
  // False if nothing came for a while or the call was ended.
  bool Receive() {
    pollfd ready{socket_.get(), POLLIN, 0};
    char buffer[4096];
    if (::poll(&ready, 1, 1000) != 1) return false;
    const ssize_t size = ::recv(socket_.get(), buffer, sizeof(buffer), 0);
    if (size <= 0) return false;
    received_.append(buffer, static_cast<size_t>(size));
    while (received_.size() >= 9) {
      const size_t length = Number(received_.data()) >> 8;
      if (received_.size() < 9 + length) break;
      if (!Handle(static_cast<uint8_t>(received_[3]), static_cast<uint8_t>(received_[4]),
                  Number(received_.data() + 5), received_.substr(9, length))) {
        return false;
      }
      received_.erase(0, 9 + length);
    }
    return true;
  }
  bool Handle(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload) {
    if (type == kReset || type == kGoAway) return false;
    if (type == kWindowUpdate) {
      (stream == 0 ? connection_window_ : stream_window_) += Number(payload.data());
    }
    if (type == kSettings && (flags & kAck) == 0) {
      for (size_t at = 0; at + 6 <= payload.size(); at += 6) {
        if (payload[at] != 0 || payload[at + 1] != 4) continue;  // SETTINGS_INITIAL_WINDOW_SIZE
        const int64_t initial = Number(payload.data() + at + 2);
        stream_window_ += initial - initial_window_;
        initial_window_ = initial;
      }
      Frame(kSettings, kAck, 0, "");
    }
    return true;
  }

  const UniqueFd socket_;
  bool open_ = false;
  std::string received_;
  int64_t initial_window_ = 65535, stream_window_ = 65535, connection_window_ = 65535;
};

size_t ResidentBytes(const Daemon& daemon) {
  for (const auto line : absl::StrSplit(HttpGet(daemon.http(), "/metrics"), '\n')) {
    const std::vector<std::string> words = absl::StrSplit(std::string(line), ' ');
    double value = 0;
    if (words.front() == "process_resident_memory_bytes" &&
        absl::SimpleAtod(words.back(), &value)) {
      return static_cast<size_t>(value);
    }
  }
  ADD_FAILURE() << "no process_resident_memory_bytes";
  return 0;
}

TEST(MemoryTest, MessagesThatNeverEndAreBoundedAndOthersAreServed) {
  const Daemon daemon(
      {"--staging-bytes", absl::StrCat(64 * kMiB), "--max-inline-bytes", absl::StrCat(32 * kMiB)});
  const GroupShape kShapes[] = {{5, 24, 96}};
  const Operands operands(kShapes, SampleOptions{});
  const Stubs stubs(daemon);
  Register(stubs, operands, "w");
  std::vector<std::unique_ptr<StalledCall>> calls;
  for (int i = 0; i < 12; ++i) {
    calls.push_back(std::make_unique<StalledCall>(daemon.tcp()));
    calls.back()->Send(60 * kMiB, 90 * kMiB);
  }
  // 720 MiB were offered, 64 + 32 + 64 MiB are what may wait.
  EXPECT_LT(ResidentBytes(daemon), 320 * kMiB);
  // Idle connections may have been closed to make room, so with a new one.
  ExecuteAndVerify(Stubs(daemon), operands, RequestOf(operands, "w"));
}

// No retry helps: it is told apart from a lack that passes.
TEST(MemoryTest, ACallThatCouldNeverHaveItsBytesIsInvalid) {
  const Daemon daemon({"--call-bytes", "65536"});
  const Stubs stubs(daemon);
  const Operands operands(kShapeT1, {.seed = 1});
  Register(stubs, operands, "w");
  v1::ExecuteRequest request = RequestOf(operands, "w");
  request.mutable_inline_operands()->mutable_activations()->resize(100'000);
  grpc::ClientContext context;
  v1::ExecuteResponse response;
  const grpc::Status status = stubs.gemm->Execute(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  EXPECT_NE(status.error_message().find("call_bytes"), std::string::npos);
}

// A reply of 24 MiB to a request of a few KiB, asked for and not read.
TEST(MemoryTest, RepliesThatNobodyReadsAreBoundedAndReturned) {
  const Daemon daemon({"--call-bytes", absl::StrCat(112 * kMiB)});
  const GroupShape kShapes[] = {{128, 49152, 32}};
  SampleOptions options;
  options.kind = DataKind::kContest;
  options.types.c_type = OutputType::kFp32;
  const Operands operands(kShapes, options);
  const Stubs stubs(daemon);
  Register(stubs, operands, "w");
  const v1::ExecuteRequest request = RequestOf(operands, "w");
  std::vector<std::unique_ptr<StalledCall>> calls;
  const auto outcome = [&] {
    grpc::ClientContext context;
    v1::ExecuteResponse response;
    return stubs.gemm->Execute(&context, request, &response).error_code();
  };
  EXPECT_EQ(outcome(), grpc::StatusCode::OK);
  // Two replies of 2 x 24 MiB fit; the third and later calls find no room.
  for (int i = 0; i < 8; ++i) {
    calls.push_back(std::make_unique<StalledCall>(daemon.tcp()));
    calls.back()->Ask(request);
  }
  const absl::Time until = absl::Now() + absl::Seconds(60);
  while (outcome() != grpc::StatusCode::RESOURCE_EXHAUSTED && absl::Now() < until) {
    absl::SleepFor(absl::Milliseconds(50));
  }
  EXPECT_EQ(outcome(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_LT(ResidentBytes(daemon), 500 * kMiB);
  calls.clear();  // the connections end, and what they held is free again
  while (outcome() != grpc::StatusCode::OK && absl::Now() < until) {
    absl::SleepFor(absl::Milliseconds(50));
  }
  EXPECT_EQ(outcome(), grpc::StatusCode::OK);
}

// Small on the wire, large in memory: refused before it is unpacked.
TEST(MemoryTest, CompressedMessagesAreRefusedUnread) {
  const Daemon daemon;
  const Stubs stubs(daemon);
  v1::ExecuteRequest request;
  request.mutable_inline_operands()->set_activations(std::string(200 * kMiB, '\0'));
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    grpc::ClientContext context;
    context.set_compression_algorithm(algorithm);
    v1::ExecuteResponse response;
    const grpc::Status status = stubs.gemm->Execute(&context, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
  }
  EXPECT_LT(ResidentBytes(daemon), 100 * kMiB);
}

}  // namespace
}  // namespace tetrad::e2e
