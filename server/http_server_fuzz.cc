// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: any bytes to the HTTP port, over a connection of its own. The first says in how
// many parts they are sent. Whatever comes, the connection ends, with one answer of HTTP or none,
// pages are those there are, and the server goes on: the next input finds it.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "engine/support/status_macros.h"
#include "engine/support/unique_fd.h"
#include "server/http_server.h"

namespace tetrad {
namespace {

constexpr std::string_view kMetrics = "metric 1\n";

// One for all inputs; it ends with the process.
const HttpServer& Started() {
  static const HttpServer& server = *[] {
    auto started = HttpServer::Start(
        *ParseListenAddress("127.0.0.1:0"),
        {.metrics = [] { return std::string(kMetrics); }, .ready = [] { return true; }});
    TETRAD_CHECK(started.ok());
    return started->release();
  }();
  return server;
}

UniqueFd Open() {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(Started().address().port));
  TETRAD_CHECK(::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0);
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  // Closed by a reset: thousands of connections must not wait for their ports.
  const linger reset{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  // The server closes a silent connection after two seconds.
  const timeval limit{.tv_sec = 30, .tv_usec = 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  return socket;
}

void Send(const UniqueFd& socket, std::string_view text) {
  // It may have answered and closed already.
  while (!text.empty()) {
    const ssize_t sent = ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    text.remove_prefix(static_cast<size_t>(sent));
  }
}

void Run(std::string_view bytes, size_t parts) {
  const UniqueFd socket = Open();
  const size_t step = bytes.size() / parts + 1;
  for (size_t at = 0; at < bytes.size(); at += step) Send(socket, bytes.substr(at, step));
  ::shutdown(socket.get(), SHUT_WR);
  std::string answer;
  std::array<char, 4096> buffer;
  ssize_t size = 0;
  while ((size = ::recv(socket.get(), buffer.data(), buffer.size(), 0)) > 0) {
    answer.append(buffer.data(), static_cast<size_t>(size));
    TETRAD_CHECK(answer.size() < 65536);
  }
  TETRAD_CHECK(size == 0 || errno != EAGAIN);  // not the limit of time
  // The library repeats the version that was asked for, also where it refuses it.
  TETRAD_CHECK(answer.empty() || answer.starts_with("HTTP/"));
  // Nothing of the file system or of the library's own pages.
  if (answer.starts_with("HTTP/1.1 200 OK\r\n")) {
    const size_t head = answer.find("\r\n\r\n");
    TETRAD_CHECK(head != std::string::npos);
    const std::string_view body = std::string_view(answer).substr(head + 4);
    TETRAD_CHECK(body.empty() || body == kMetrics || body == "alive\n" || body == "ready\n");
  }
}

}  // namespace
}  // namespace tetrad

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  tetrad::Run({reinterpret_cast<const char*>(data) + 1, size - 1}, 1 + data[0] % 4);
  return 0;
}
