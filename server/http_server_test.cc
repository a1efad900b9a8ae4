// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/http_server.h"

#include <atomic>
#include <chrono>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "engine/support/unique_fd.h"

namespace tetrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class HttpServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = HttpServer::Start(*ParseListenAddress("127.0.0.1:0"),
                                    {.metrics = [] { return std::string(100'000, 'm'); },
                                     .ready = [this] { return ready_.load(); },
                                     .may_scrape =
                                         [this](const HttpServer::Asker& asker) {
                                           EXPECT_THAT(asker.peer, StartsWith("127.0.0.1:"));
                                           return asker.authorization == wanted_
                                                      ? HttpServer::Answer::kPage
                                                  : asker.authorization.empty()
                                                      ? HttpServer::Answer::kUnauthorized
                                                      : HttpServer::Answer::kForbidden;
                                         }});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    ASSERT_NE(server_->address().port, 0);
  }
  UniqueFd Open(const std::string& text) {
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(server_->address().port));
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    EXPECT_EQ(::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
    return socket;
  }
  static std::string Rest(const UniqueFd& socket) {
    std::string answer;
    char buffer[4096];
    for (ssize_t size; (size = ::recv(socket.get(), buffer, sizeof(buffer), 0)) > 0;) {
      answer.append(buffer, static_cast<size_t>(size));
    }
    return answer;
  }
  std::string Request(const std::string& line) {
    return Rest(Open(line + " HTTP/1.1\r\nHost: x\r\n\r\n"));
  }

  std::atomic<bool> ready_{true};
  std::string wanted_;  // of the Authorization header
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, PagesAndNothingElse) {
  EXPECT_THAT(Request("GET /healthz"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Request("GET /readyz"), StartsWith("HTTP/1.1 200"));
  ready_ = false;
  EXPECT_THAT(Request("GET /readyz"), StartsWith("HTTP/1.1 503"));
  const std::string metrics = Request("GET /metrics");
  EXPECT_THAT(metrics, HasSubstr("text/plain; version=0.0.4"));
  EXPECT_GT(metrics.size(), 100'000u);
  EXPECT_LT(Request("HEAD /metrics").size(), 500u);
  for (const char* line : {"GET /", "GET /metricsx", "GET /metrics/", "GET /../etc/passwd",
                           "POST /metrics", "PUT /x", "DELETE /metrics"}) {
    EXPECT_THAT(Request(line), StartsWith("HTTP/1.1 4")) << line;
  }
}

// The library would answer with a text that is no HTTP.
TEST_F(HttpServerTest, UpgradesAreNotHeeded) {
  const std::string upgrade =
      "Host: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
      "Sec-WebSocket-Key: dGhlIHNhbXBsZQ==\r\n\r\n";
  EXPECT_THAT(Rest(Open("GET /healthz HTTP/1.1\r\n" + upgrade)), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Rest(Open("GET /ws HTTP/1.1\r\n" + upgrade)), StartsWith("HTTP/1.1 404"));
}

TEST_F(HttpServerTest, ScrapesAreAskedForTheirCredentialAndProbesAreNot) {
  wanted_ = "Bearer good";
  EXPECT_THAT(Request("GET /metrics"),
              AllOf(StartsWith("HTTP/1.1 401"), HasSubstr("\r\nWWW-Authenticate: Bearer\r\n")));
  const auto with = [](const char* method, const char* token) {
    return std::string(method) + " /metrics HTTP/1.1\r\nHost: x\r\nauthorization: " + token +
           "\r\n\r\n";
  };
  EXPECT_THAT(Rest(Open(with("GET", "Bearer bad"))), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(Rest(Open(with("HEAD", "Bearer bad"))), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(Rest(Open(with("GET", "Bearer good"))), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Request("GET /healthz"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Request("GET /readyz"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, SlowConnectionsDoNotKeepOthersWaiting) {
  std::vector<UniqueFd> slow;
  for (int i = 0; i < 16; ++i) slow.push_back(Open("G"));
  for (int i = 0; i < 4; ++i) slow.push_back(Open("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(Request("GET /healthz"), StartsWith("HTTP/1.1 200"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  // And they are closed.
  Rest(slow.front());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST_F(HttpServerTest, StopsQuickly) {
  EXPECT_THAT(Request("GET /healthz"), StartsWith("HTTP/1.1 200"));
  const auto begin = std::chrono::steady_clock::now();
  server_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

TEST_F(HttpServerTest, OccupiedPortIsAnError) {
  const auto second = HttpServer::Start(server_->address(), {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("another process listens there"));
}

}  // namespace
}  // namespace tetrad
