// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Starting, being the only one, being found: listeners, health, reflection.
#include <filesystem>

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include "grpcpp/client_context.h"

#include "tests/e2e/gemm_client.h"

namespace tetrad::e2e {
namespace {

using grpc::health::v1::HealthCheckResponse;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kUsage = 64;
constexpr int kUnavailable = 69;

grpc::Status GetStatus(const Stubs& stubs, v1::GetStatusResponse* response) {
  grpc::ClientContext context;
  return stubs.status->GetStatus(&context, {}, response);
}

TEST(LifecycleTest, StatusTellsWhatRuns) {
  const Daemon daemon({"--threads", "2", "--plan-capacity", "7"});
  v1::GetStatusResponse status;
  ASSERT_TRUE(GetStatus(Stubs(daemon), &status).ok());
  EXPECT_FALSE(status.version().empty());
  EXPECT_EQ(status.state(), "serving");
  EXPECT_EQ(status.plan_capacity(), 7);
  ASSERT_EQ(status.devices_size(), 1);
  EXPECT_EQ(status.devices(0).capability(), "cpu");
  EXPECT_EQ(status.devices(0).units(), 2);
  EXPECT_GT(status.devices(0).flops_per_second(), 0);
  EXPECT_GT(status.devices(0).limit_bytes(), 0);
  EXPECT_TRUE(status.devices(0).has_execution());
  EXPECT_EQ(status.devices(0).execution().graphs(), 0);
  struct stat info;
  ASSERT_EQ(::stat((daemon.folder() + "/tetrad.sock").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(LifecycleTest, SecondDaemonFailsClearlyAndHarmsNothing) {
  Daemon daemon;
  const struct {
    std::vector<std::string> flags;
    std::string address;
  } kCases[] = {
      {{"--listen", daemon.socket(), "--http", "off"}, daemon.socket()},
      {{"--listen", daemon.tcp(), "--http", "off"}, daemon.tcp()},
      {{"--listen", daemon.socket() + "2", "--http", daemon.http()}, daemon.http()},
  };
  for (const auto& test : kCases) {
    const ProcessResult second = RunTetradd(test.flags);
    EXPECT_EQ(second.exit_code, kUnavailable) << second.output;
    EXPECT_THAT(second.output, HasSubstr("cannot listen on " + test.address));
    v1::GetStatusResponse status;
    EXPECT_TRUE(GetStatus(Stubs(daemon), &status).ok()) << test.address;
    EXPECT_TRUE(GetStatus(Stubs(Connect(daemon.tcp())), &status).ok()) << test.address;
    EXPECT_EQ(HttpGet(daemon.http(), "/healthz"), "alive\n") << test.address;
  }
}

TEST(LifecycleTest, KilledDaemonIsSucceededOnTheSameSocket) {
  Daemon daemon;
  daemon.Signal(SIGKILL);
  ASSERT_EQ(daemon.Wait(absl::Seconds(10)), 128 + SIGKILL);
  EXPECT_TRUE(std::filesystem::exists(daemon.folder() + "/tetrad.sock"));
  daemon.Restart();
  v1::GetStatusResponse status;
  EXPECT_TRUE(GetStatus(Stubs(daemon), &status).ok());
}

TEST(LifecycleTest, WrongConfigurationsEndWithTheirCode) {
  const struct {
    std::vector<std::string> flags;
    int exit_code;
    std::string output;
  } kCases[] = {
      {{"--no-such-flag"}, kUsage, "--no-such-flag"},
      {{"--threads", "many"}, kUsage, "--threads"},
      {{"--device", "tpu", "--listen", "127.0.0.1:0", "--http", "off"},
       kUsage,
       "unknown device 'tpu'"},
      {{"--graph-bytes", "1"}, kUsage, "1 is not in [1048576, "},
      {{"--lanes", "0"}, kUsage, "0 is not in [1, 64]"},
      {{"--spin-microseconds", "-2"}, kUsage, "-2 is not in [-1, "},
      {{"--device", "cpu", "--listen", "nowhere"}, kUsage, "'nowhere'"},
      {{"--device", "cpu", "--listen", "0.0.0.0:0"}, kUsage, "--insecure-listen"},
      {{"--device", "cpu", "--listen", "unix:/no/such/folder/s"}, kUnavailable, "/no/such/folder"},
      {{"--version"}, 0, "tetradd "},
      {{"--print-config", "--threads", "3"}, 0, "threads = 3  # --threads"},
      {{"--help"}, 0, "--plan-capacity"},
  };
  for (const auto& test : kCases) {
    SCOPED_TRACE(test.flags[0]);
    const ProcessResult result = RunTetradd(test.flags);
    EXPECT_EQ(result.exit_code, test.exit_code) << result.output;
    EXPECT_THAT(result.output, HasSubstr(test.output));
  }
}

// Whatever this build and this machine lack, the daemon names the device, says
// what is the matter, and does not compute on the CPU instead.
TEST(LifecycleTest, AGpuThatIsNotThereIsAnErrorInWords) {
  const ProcessResult result =
      RunTetradd({"--device", "cuda:GPU-none", "--listen", "127.0.0.1:0", "--http", "off"});
  EXPECT_EQ(result.exit_code, kUnavailable) << result.output;
  EXPECT_THAT(result.output, HasSubstr("device 'cuda:GPU-none': "));
  EXPECT_THAT(result.output,
              AnyOf(HasSubstr("this build has no CUDA device; it has: cpu"),
                    HasSubstr("no CUDA driver: libcuda.so.1: "), HasSubstr("driver is too old"),
                    HasSubstr("cuInit: "), HasSubstr("no GPU for which this build has kernels"),
                    HasSubstr("there is no such GPU; there are: cuda:GPU-")));
}

TEST(LifecycleTest, BeyondLoopbackOnlyWithConsent) {
  const TemporaryFolder folder;
  Daemon daemon({"--insecure-listen"});
  const ProcessResult refused = RunTetradd(
      {"--device", "cpu", "--listen", "unix:" + folder.path() + "/s", "--http", "0.0.0.0:0"});
  EXPECT_EQ(refused.exit_code, kUsage);
  EXPECT_THAT(refused.output, HasSubstr("--insecure-listen"));
}

TEST(LifecycleTest, HealthChecksEveryService) {
  const Daemon daemon;
  const Stubs stubs(daemon);
  const struct {
    const char* service;
    grpc::StatusCode code;
  } kCases[] = {
      {"", grpc::StatusCode::OK},
      {"tetrad.v1.Gemm", grpc::StatusCode::OK},
      {"tetrad.v1.Weights", grpc::StatusCode::OK},
      {"tetrad.v1.Status", grpc::StatusCode::OK},
      {"tetrad.v1.Nothing", grpc::StatusCode::NOT_FOUND},
  };
  for (const auto& test : kCases) {
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(test.service);
    HealthCheckResponse response;
    grpc::ClientContext context;
    EXPECT_EQ(stubs.health->Check(&context, request, &response).error_code(), test.code);
    if (test.code == grpc::StatusCode::OK) {
      EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
    }
  }
}

// The reflection service's messages are in no package, so this speaks bytes:
// field 7 of the request, list_services, as an empty text.
TEST(LifecycleTest, ReflectionListsServices) {
  const Daemon daemon;
  grpc::GenericStub stub(Connect(daemon.socket()));
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto next = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const auto call = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  call->StartCall(nullptr);
  ASSERT_TRUE(next());
  const grpc::Slice request(std::string("\x3A\x00", 2));
  call->Write(grpc::ByteBuffer(&request, 1), nullptr);
  ASSERT_TRUE(next());
  grpc::ByteBuffer reply;
  call->Read(&reply, nullptr);
  ASSERT_TRUE(next());
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(reply.Dump(&slices).ok());
  std::string text;
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  for (const char* service :
       {"tetrad.v1.Gemm", "tetrad.v1.Weights", "tetrad.v1.Status", "grpc.health.v1.Health"}) {
    EXPECT_THAT(text, HasSubstr(service));
  }
  context.TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  next();
  queue.Shutdown();
}

}  // namespace
}  // namespace tetrad::e2e
