// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cpp/endpoint.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace tetrad {
namespace {

using ::testing::HasSubstr;

TEST(EndpointTest, AcceptsBothForms) {
  const struct {
    const char* text;
    Endpoint::Kind kind;
    const char* target;
  } kCases[] = {
      {"unix:/run/tetrad/tetrad.sock", Endpoint::Kind::kUnix, "unix:/run/tetrad/tetrad.sock"},
      {"unix:relative.sock", Endpoint::Kind::kUnix, "unix:relative.sock"},
      {"localhost:8472", Endpoint::Kind::kTcp, "dns:///localhost:8472"},
      {"10.1.2.3:1", Endpoint::Kind::kTcp, "dns:///10.1.2.3:1"},
      {"[::1]:65535", Endpoint::Kind::kTcp, "dns:///[::1]:65535"},
  };
  for (const auto& c : kCases) {
    const auto endpoint = ParseEndpoint(c.text);
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    EXPECT_EQ(endpoint->kind, c.kind);
    EXPECT_EQ(endpoint->ToString(), c.text);
    EXPECT_EQ(endpoint->GrpcTarget(), c.target);
  }
}

TEST(EndpointTest, RefusalsNameTheFault) {
  const struct {
    std::string text;
    const char* fault;
  } kCases[] = {
      {"", "it is empty"},
      {"unix:", "path is empty"},
      {"unix:///run/x", "not unix:///PATH"},
      {"unix:" + std::string(108, 'p'), "at most 107 bytes, this one has 108"},
      {std::string("unix:a\0b", 8), "NUL"},
      {"localhost", "port is missing"},
      {"/run/tetrad.sock", "port is missing"},
      {":80", "host is empty"},
      {"host:", "from 1 to 65535"},
      {"host:0", "from 1 to 65535"},
      {"host:65536", "from 1 to 65535"},
      {"host:80x", "from 1 to 65535"},
      {"host:-1", "from 1 to 65535"},
      {"::1:80", "needs brackets"},
      {"http://host:80", "scheme such as http:// is not taken"},
      {"http://host", "scheme such as http:// is not taken"},
      {"ho st:80", "no host name has"},
      {"user@host:80", "no host name has"},
  };
  for (const auto& c : kCases) {
    const auto endpoint = ParseEndpoint(c.text);
    ASSERT_FALSE(endpoint.ok()) << c.text;
    EXPECT_EQ(endpoint.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(endpoint.status().message()), HasSubstr(c.fault));
    EXPECT_THAT(std::string(endpoint.status().message()), HasSubstr("unix:PATH or HOST:PORT"));
  }
}

class ReachableTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/tetrad-endpoint-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static absl::Status Check(const std::string& path) {
    return CheckReachable(*ParseEndpoint("unix:" + path));
  }
  std::string folder_;
};

TEST_F(ReachableTest, MissingSocket) {
  const absl::Status status = Check(folder_ + "/none.sock");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("is the daemon running"));
}

TEST_F(ReachableTest, FileThatIsNoSocket) {
  std::ofstream(folder_ + "/file") << "x";
  EXPECT_EQ(Check(folder_ + "/file").code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ReachableTest, SocketAndTcpPass) {
  const std::string path = folder_ + "/s";
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_TRUE(Check(path).ok());
  EXPECT_TRUE(CheckReachable(*ParseEndpoint("nowhere.invalid:1")).ok());
  close(fd);
}

}  // namespace
}  // namespace tetrad
