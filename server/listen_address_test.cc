// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/listen_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "engine/support/unique_fd.h"

namespace tetrad {
namespace {

using ::testing::HasSubstr;

TEST(ListenAddressTest, Parses) {
  const struct {
    std::string text, host, path;
    int port;
  } kCases[] = {
      {"unix:/run/a.sock", "", "/run/a.sock", 0},
      {"127.0.0.1:0", "127.0.0.1", "", 0},
      {"localhost:65535", "localhost", "", 65535},
      {"[::1]:80", "::1", "", 80},
      {"0.0.0.0:1", "0.0.0.0", "", 1},
  };
  for (const auto& test : kCases) {
    const auto address = ParseListenAddress(test.text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(address->host, test.host);
    EXPECT_EQ(address->path, test.path);
    EXPECT_EQ(address->port, test.port);
    EXPECT_EQ(address->ToString(), test.text);
  }
}

TEST(ListenAddressTest, RefusesWithReason) {
  const struct {
    std::string text;
    const char* why;
  } kCases[] = {
      {"", "no port"},
      {"unix:", "no absolute path"},
      {"unix:relative", "no absolute path"},
      {"unix:/" + std::string(107, 'a'), "108 bytes, limit 107"},
      {std::string("unix:/a\0b", 9), "NUL"},
      {"localhost", "no port"},
      {":80", "no host"},
      {"localhost:", "no port in"},
      {"localhost:http", "no port in"},
      {"localhost:65536", "no port in"},
      {"localhost:-1", "no port in"},
      {"localhost:1x", "no port in"},
      {"::1:80", "brackets"},
      {"[localhost]:80", "no IPv6 address"},
      {"dns:///host:80", "no valid host"},
      {"a\nb:x", "'a\\x0Ab:x'"},
  };
  for (const auto& test : kCases) {
    const auto address = ParseListenAddress(test.text);
    EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument) << test.text;
    EXPECT_THAT(std::string(address.status().message()), HasSubstr(test.why));
  }
}

TEST(ListenAddressTest, ExposureNeedsConsent) {
  for (const char* text : {"127.0.0.1:1", "127.8.9.1:1", "localhost:1", "[::1]:1"}) {
    EXPECT_TRUE(CheckExposure(*ParseListenAddress(text), false).ok()) << text;
  }
  for (const char* text : {"0.0.0.0:1", "[::]:1", "192.0.2.1:1"}) {
    const ListenAddress address = *ParseListenAddress(text);
    const absl::Status status = CheckExposure(address, false);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--insecure-listen"));
    EXPECT_TRUE(CheckExposure(address, true).ok()) << text;
  }
  EXPECT_EQ(CheckExposure(*ParseListenAddress("no.such.host.invalid:1"), true).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ListenAddressTest, NumericForm) {
  EXPECT_EQ(*NumericAddress(*ParseListenAddress("127.0.0.1:5")), "127.0.0.1:5");
  EXPECT_EQ(*NumericAddress(*ParseListenAddress("[::1]:0")), "[::1]:0");
}

TEST(ListenAddressTest, OccupiedPortIsNamed) {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in bound{};
  bound.sin_family = AF_INET;
  bound.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(bound);
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&bound), sizeof(bound)), 0);
  ASSERT_EQ(::listen(socket.get(), 1), 0);
  ASSERT_EQ(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size), 0);
  const std::string text = "127.0.0.1:" + std::to_string(ntohs(bound.sin_port));
  const absl::Status status = CheckBindable(*ParseListenAddress(text));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(text + ": another process listens there"));
  EXPECT_TRUE(CheckBindable(*ParseListenAddress("127.0.0.1:0")).ok());
}

}  // namespace
}  // namespace tetrad
