// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Peers that come and go in every bad way, or stay and take nothing: the daemon
// is afterwards what it was before, and a good client beside them sees nothing
// of it. With TETRAD_LONG_TESTS set the same for two minutes, and until the
// daemon has parted by itself with all that stand still.
#include <atomic>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/client_context.h"

#include "tests/e2e/memory_client.h"
#include "tests/e2e/raw_connection.h"

namespace tetrad::e2e {
namespace {

constexpr int kPerSecond = 200;
constexpr char kExecute[] = "/tetrad.v1.Gemm/Execute";

bool Long() { return std::getenv("TETRAD_LONG_TESTS") != nullptr; }

struct Process {
  int64_t threads = 0;
  int64_t resident_bytes = 0;
  int64_t files = 0;
};

Process Look(const Daemon& daemon) {
  const std::string folder = absl::StrCat("/proc/", daemon.pid());
  Process process;
  std::ifstream status(folder + "/status");
  for (std::string word; status >> word;) {
    if (word == "Threads:") status >> process.threads;
    if (word == "VmRSS:") status >> process.resident_bytes;
  }
  process.resident_bytes *= 1024;
  for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator(folder + "/fd")) {
    ++process.files;
  }
  return process;
}

// Good clients, one a listener, that ask all the time.
class GoodClients {
 public:
  GoodClients(const Daemon& daemon, const Operands& operands, const std::string& weights) {
    for (const std::string& address : {daemon.socket(), daemon.tcp()}) {
      threads_.emplace_back(
          [this, address, request = RequestOf(operands, weights)](const std::stop_token& stop) {
            const Stubs stubs(Connect(address));
            while (!stop.stop_requested()) {
              grpc::ClientContext context;
              context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
              v1::ExecuteResponse response;
              const grpc::Status status = stubs.gemm->Execute(&context, request, &response);
              EXPECT_TRUE(status.ok()) << status.error_message();
              served_ += status.ok() ? 1 : 0;
            }
          });
    }
  }
  int64_t served() const { return served_; }

 private:
  std::atomic<int64_t> served_{0};
  std::vector<std::jthread> threads_;
};

class ChurnTest : public ::testing::Test {
 protected:
  ChurnTest() { Register(stubs_, operands_, "w"); }

  // Comes, does one bad thing and is gone; or stays, and is kept.
  void BadPeer(int number) {
    const std::string address = number % 2 == 0 ? daemon_.tcp() : daemon_.socket();
    const bool bare = number / 2 % 8 >= 5;
    RawConnection peer(address,
                       bare ? RawConnection::Begin::kNothing : RawConnection::Begin::kPreface);
    switch (number / 2 % 8) {
      case 0:  // a good one that leaves
        peer.Call(1, "/tetrad.v1.Status/GetStatus");
        peer.Message(1, "");
        peer.HalfClose(1);
        EXPECT_TRUE(peer.WaitForEnd(1, absl::Seconds(30)));
        return;
      case 1:  // reset in the middle of a request
        peer.Call(1, kExecute);
        peer.PartOfMessage(1, 20'000, 1 << 20);
        return peer.Abort();
      case 2:  // many streams, reset at once
        for (uint32_t stream = 1; stream < 64; stream += 2) {
          peer.Call(stream, kExecute);
          peer.ResetStream(stream);
        }
        return;
      case 3:  // half a HEADERS frame
        return peer.Send(
            RawConnection::FrameHead(100, RawConnection::kHeaders, RawConnection::kEndHeaders, 1) +
            "half");
      case 4:  // a whole request whose answer it does not wait for
        peer.Call(1, kExecute);
        peer.Message(1, request_);
        peer.HalfClose(1);
        return;
      case 5:  // half a preface
        return peer.Send(RawConnection::Preface().substr(0, 11));
      case 6:  // another protocol
        return peer.Send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
      default:  // silence, before a word was said
        silent_.push_back(std::move(peer));
        if (silent_.size() > 100) silent_.pop_front();
    }
  }

  void Churn(absl::Duration duration) {
    const absl::Time began = absl::Now();
    const int count = static_cast<int>(absl::ToDoubleSeconds(duration) * kPerSecond);
    for (int number = 0; number < count; ++number) {
      absl::SleepFor(began + absl::Seconds(1) * number / kPerSecond - absl::Now());
      BadPeer(number);
    }
  }

  const Daemon daemon_{{"--progress-seconds", "2"}};
  const Stubs stubs_{daemon_};
  const std::unique_ptr<Client> client_ = ConnectClient(daemon_.socket());
  const GroupShape shapes_[1] = {{5, 24, 96}};
  const Operands operands_{shapes_, SampleOptions{}};
  const std::string request_ = RequestOf(operands_, "w").SerializeAsString();
  std::deque<RawConnection> silent_;
};

TEST_F(ChurnTest, ConnectionsThatComeAndGoLeaveNothing) {
  const std::string idle = Held(daemon_, *client_);
  std::optional<GoodClients> good(std::in_place, daemon_, operands_, "w");
  // The first pays for threads, their heaps and the sizes of tables.
  Churn(absl::Seconds(3));
  silent_.clear();
  ASSERT_TRUE(Eventually([&] { return good->served() > 0; }));
  const auto settled = [&] {
    int64_t files = -1;
    return Eventually([&] {
      const int64_t before = std::exchange(files, Look(daemon_).files);
      absl::SleepFor(absl::Milliseconds(100));
      return files == before;
    });
  };
  ASSERT_TRUE(settled());
  const Process base = Look(daemon_);
  const int64_t served = good->served();
  Churn(Long() ? absl::Minutes(2) : absl::Seconds(5));
  EXPECT_GT(good->served(), served);
  // Those that never said a word are sent away, though they would stay: the
  // handshake has ten seconds.
  EXPECT_FALSE(silent_.empty());
  EXPECT_TRUE(Eventually([&] { return Look(daemon_).files <= base.files; }))
      << Look(daemon_).files << " files, " << base.files << " before";
  const Process after = Look(daemon_);
  // 16 KiB a connection of the short form, 0.7 KiB one of the long form: more than
  // what allocators keep here and there, less than any forgotten call holds.
  EXPECT_LT(after.resident_bytes, base.resident_bytes + (16 << 20));
  // The RPC library starts threads when its own are busy, and ends them late.
  EXPECT_LE(after.threads, base.threads + 4);
  good.reset();
  EXPECT_TRUE(Eventually([&] { return Held(daemon_, *client_) == idle; }))
      << Held(daemon_, *client_);
}

// Replies of 64 MiB, and answers of 1 MiB of a stream, that nobody ever takes.
TEST_F(ChurnTest, PeersThatTakeNothingLeaveNothing) {
  const GroupShape shapes[] = {{128, 131072, 32}, {128, 2048, 32}};
  SampleOptions options;
  options.kind = DataKind::kContest;
  options.types.c_type = OutputType::kFp32;
  const Operands large(std::span(shapes, 1), options);
  const Operands medium(std::span(shapes + 1, 1), options);
  Register(stubs_, large, "large");
  Register(stubs_, medium, "medium");
  const std::string request = RequestOf(large, "large").SerializeAsString();
  v1::ExecuteStreamRequest message;
  *message.mutable_execute() = RequestOf(medium, "medium");
  const std::string idle = Held(daemon_, *client_);
  const auto take_nothing = [&](std::vector<RawConnection>& peers) {
    for (int i = 0; i < 3; ++i) {
      RawConnection& unary = peers.emplace_back(daemon_.tcp());
      unary.Call(1, kExecute);
      unary.Message(1, request);
      unary.HalfClose(1);
      RawConnection& stream = peers.emplace_back(daemon_.socket());
      stream.Call(1, "/tetrad.v1.Gemm/ExecuteStream");
      for (uint64_t id = 0; id < 8; ++id) {
        message.set_id(id);
        stream.Message(1, message.SerializeAsString());
      }
    }
  };
  const auto nothing_held = [&] {
    return Eventually([&] { return Held(daemon_, *client_) == idle; });
  };
  const auto come_and_go = [&] {
    std::vector<RawConnection> peers;
    take_nothing(peers);
    EXPECT_TRUE(Eventually([&] { return Metric(daemon_, "tetrad_call_bytes") > 3 * (128 << 20); }));
  };
  come_and_go();  // pays for staging and plans
  ASSERT_TRUE(nothing_held()) << Held(daemon_, *client_);
  const auto stalled = [&](const char* method) {
    return Metric(daemon_, absl::StrCat("tetrad_stalled_streams_total{method=\"tetrad.v1.Gemm/",
                                        method, "\"}"));
  };
  const double stalled_before = stalled("ExecuteStream");
  // Without the device's memory, which on the CPU is the process's, too: idle
  // staging is kept, as many sets as were needed at once.
  const auto own_bytes = [&] {
    return Look(daemon_).resident_bytes -
           static_cast<int64_t>(Metric(daemon_, "tetrad_device_allocated_bytes"));
  };
  const int64_t base_bytes = own_bytes();
  for (int round = 0; round < 5; ++round) come_and_go();
  std::optional<GoodClients> good(std::in_place, daemon_, operands_, "w");
  ASSERT_TRUE(Eventually([&] { return good->served() > 0; }));
  const Process base = Look(daemon_);
  const int64_t served = good->served();
  std::vector<RawConnection> peers;
  take_nothing(peers);
  ASSERT_TRUE(Eventually([&] { return Metric(daemon_, "tetrad_call_bytes") > 3 * (128 << 20); }));
  // Streams after two seconds and one for the MiB; a reply of 64 MiB has more than
  // a minute.
  EXPECT_TRUE(Eventually([&] { return stalled("ExecuteStream") >= stalled_before + 3; }));
  if (Long()) {
    for (int i = 0; i < 2 && stalled("Execute") < 3; ++i) {
      Eventually([&] { return stalled("Execute") == 3; });
    }
    EXPECT_EQ(stalled("Execute"), 3);
    // They answer no ping either, so within a minute the connections end, too.
    EXPECT_TRUE(Eventually([&] { return Look(daemon_).files <= base.files; }));
  }
  EXPECT_GT(good->served(), served);
  peers.clear();
  EXPECT_TRUE(Eventually([&] { return Look(daemon_).files <= base.files; }));
  good.reset();
  EXPECT_TRUE(nothing_held()) << Held(daemon_, *client_);
  // 18 times a reply and its copy were held. Each of the four threads that make
  // them may keep 64 MiB at the end of its heap (glibc's limit for trimming).
  EXPECT_TRUE(Eventually([&] { return own_bytes() < base_bytes + (256 << 20); }))
      << own_bytes() << " bytes, " << base_bytes << " before";
  EXPECT_LE(Look(daemon_).threads, base.threads + 4);
}

// Twice as many as the page has threads, each with a byte every now and then.
TEST_F(ChurnTest, SlowScrapersDoNotKeepAScrapeWaiting) {
  std::vector<RawConnection> slow;
  for (int i = 0; i < 64; ++i) slow.emplace_back(daemon_.http(), RawConnection::Begin::kNothing);
  const std::jthread drip([&](const std::stop_token& stop) {
    const std::string request = "GET /metrics HTTP/1.1\r\nHost: " + std::string(10'000, 'h');
    for (size_t at = 0; !stop.stop_requested(); ++at) {
      for (RawConnection& peer : slow) peer.Send(request.substr(at, 1));
      absl::SleepFor(absl::Milliseconds(200));
    }
  });
  for (int i = 0; i < 5; ++i) {
    const absl::Time began = absl::Now();
    int status = 0;
    const std::string page = HttpGet(daemon_.http(), "/metrics", &status);
    EXPECT_EQ(status, 200);
    EXPECT_NE(page.find("tetrad_serving 1"), std::string::npos);
    EXPECT_LT(absl::Now() - began, absl::Seconds(10));  // what Prometheus waits by default
  }
}

}  // namespace
}  // namespace tetrad::e2e
