// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What listens, for whom: the listener for probes, permissions of sockets,
// reflection, and options that do not go together.
#include <fstream>
#include <future>

#include <gmock/gmock.h>
#include <grp.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "grpcpp/client_context.h"

#include "tests/e2e/certificates.h"
#include "tests/e2e/memory_client.h"

namespace tetrad::e2e {
namespace {

using grpc::StatusCode;
using grpc::health::v1::HealthCheckResponse;
using ::testing::HasSubstr;

StatusCode EmptyCall(const std::string& address, const std::string& method) {
  grpc::GenericStub stub(Connect(address));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  const grpc::Slice nothing;
  const grpc::ByteBuffer request(&nothing, 1);
  grpc::ByteBuffer response;
  std::promise<grpc::Status> ended;
  stub.UnaryCall(&context, "/" + method, grpc::StubOptions(), &request, &response,
                 [&ended](const grpc::Status& status) { ended.set_value(status); });
  return ended.get_future().get().error_code();
}

HealthCheckResponse::ServingStatus Health(const std::string& address) {
  const Stubs stubs(Connect(address));
  grpc::ClientContext context;
  HealthCheckResponse response;
  EXPECT_TRUE(stubs.health->Check(&context, {}, &response).ok());
  return response.status();
}

constexpr char kReflection[] = "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

TEST(ListenersTest, ProbesAreAnsweredWithoutCredentialsAndNothingElseIs) {
  const TemporaryFolder folder;
  const Authority authority("ca");
  const PemPair own = IssueForDaemon(authority);
  const auto file = [&](const char* name, const std::string& text) {
    std::ofstream(folder.path() + "/" + name) << text;
    return folder.path() + "/" + name;
  };
  Daemon daemon({"--health", "127.0.0.1:0", "--access", file("access", ""), "--tls-certificate",
                 file("cert", own.certificate), "--tls-key", file("key", own.key),
                 "--tls-client-ca", file("ca", authority.certificate()), "--tls-require-client",
                 "--lame-duck-seconds", "10"});
  EXPECT_EQ(Health(daemon.health()), HealthCheckResponse::SERVING);
  for (const char* method : {"tetrad.v1.Gemm/Execute", "tetrad.v1.Status/GetStatus",
                             "tetrad.v1.Admin/Drain", "tetrad.v1.Weights/Upload", kReflection}) {
    EXPECT_EQ(EmptyCall(daemon.health(), method), StatusCode::UNIMPLEMENTED) << method;
  }
  daemon.Signal(SIGTERM);
  EXPECT_TRUE(Eventually([&] { return daemon.Log().find("draining") != std::string::npos; }));
  EXPECT_TRUE(
      Eventually([&] { return Health(daemon.health()) == HealthCheckResponse::NOT_SERVING; }));
  EXPECT_EQ(daemon.Wait(absl::Seconds(30)), 0);
}

TEST(ListenersTest, ProbesOverASocket) {
  const TemporaryFolder folder;
  const std::string address = absl::StrCat("unix:", folder.path(), "/health.sock");
  const Daemon daemon({"--health", address});
  EXPECT_EQ(daemon.health(), address);
  EXPECT_EQ(Health(address), HealthCheckResponse::SERVING);
  EXPECT_EQ(EmptyCall(address, "tetrad.v1.Status/GetStatus"), StatusCode::UNIMPLEMENTED);
}

TEST(ListenersTest, ReflectionCanBeTurnedOff) {
  const Daemon open, closed({"--no-reflection"});
  EXPECT_NE(EmptyCall(open.socket(), kReflection), StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(EmptyCall(closed.socket(), kReflection), StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(Health(closed.socket()), HealthCheckResponse::SERVING);
}

struct stat Stat(const std::string& address) {
  struct stat info {};
  EXPECT_EQ(::stat(address.substr(5).c_str(), &info), 0) << address;
  return info;
}

TEST(ListenersTest, SocketsAreOpenAsFarAsAsked) {
  const Daemon closed;
  EXPECT_EQ(Stat(closed.socket()).st_mode & 07777, 0600u);
  const struct group* const own = ::getgrgid(::getegid());
  ASSERT_NE(own, nullptr);
  const std::string name = own->gr_name;
  const Daemon open({"--socket-mode", "0660", "--socket-group", name});
  EXPECT_EQ(Stat(open.socket()).st_mode & 07777, 0660u);
  EXPECT_EQ(Stat(open.socket()).st_gid, ::getegid());
  EXPECT_EQ(Health(open.socket()), HealthCheckResponse::SERVING);
  if (::geteuid() != 0) return;  // others may not give files away
  const struct group* const other = ::getgrnam("daemon");
  ASSERT_NE(other, nullptr);
  const gid_t gid = other->gr_gid;
  const Daemon given({"--socket-mode", "0666", "--socket-group", "daemon"});
  EXPECT_EQ(Stat(given.socket()).st_mode & 07777, 0666u);
  EXPECT_EQ(Stat(given.socket()).st_gid, gid);
}

TEST(ListenersTest, WrongOptionsEndTheStartWithTheirNames) {
  const TemporaryFolder folder;
  const std::string listen = absl::StrCat("unix:", folder.path(), "/s");
  const auto file = [&](const char* name, const std::string& text) {
    std::ofstream(folder.path() + "/" + name) << text;
    return folder.path() + "/" + name;
  };
  const Authority authority("ca");
  const PemPair own = IssueForDaemon(authority);
  const std::string cert = file("cert", own.certificate), key = file("key", own.key);
  const std::string other_key = file("other", IssueForDaemon(authority).key);
  const struct {
    std::vector<std::string> flags;
    std::string message;
  } kCases[] = {
      {{"--tls-certificate", cert}, "tls_certificate needs tls_key"},
      {{"--tls-key", key}, "tls_key needs tls_certificate"},
      {{"--tls-client-ca", cert}, "tls_client_ca needs tls_certificate"},
      {{"--tls-certificate", cert, "--tls-key", key, "--tls-require-client"},
       "tls_require_client needs tls_client_ca"},
      {{"--tls-certificate", cert, "--tls-key", other_key}, "tls_key: " + other_key},
      {{"--tls-certificate", cert, "--tls-key", "/does/not/exist"}, "tls_key: /does/not/exist"},
      {{"--access", file("access", "\n\ntokens = 3\n")}, "access:3: tokens: wanted"},
      {{"--access", "/does/not/exist"}, "/does/not/exist: cannot be read"},
      {{"--socket-mode", "0500"}, "socket_mode: '0500'"},
      {{"--socket-mode", "1777"}, "socket_mode: '1777'"},
      {{"--socket-mode", "0668"}, "socket_mode: '0668'"},
      {{"--socket-mode", "rw"}, "socket_mode: 'rw'"},
      {{"--socket-group", "no such group"}, "socket_group: no group is called 'no such group'"},
      {{"--health", "nowhere"}, "listen address 'nowhere'"},
      {{"--listen", "0.0.0.0:0"}, "--insecure-listen allows it"},
  };
  for (const auto& test : kCases) {
    std::vector<std::string> arguments = {"--device", "cpu", "--listen", listen, "--http", "off"};
    arguments.insert(arguments.end(), test.flags.begin(), test.flags.end());
    const ProcessResult result = RunTetradd(arguments);
    EXPECT_EQ(result.exit_code, 64) << test.message;
    EXPECT_THAT(result.output, HasSubstr(test.message));
  }
}

}  // namespace
}  // namespace tetrad::e2e
