// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/proxy.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace tetrad::e2e {
namespace {

constexpr int64_t kNoLimit = INT64_MAX;

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
  int family = AF_UNSPEC;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

Address Parse(const std::string& text) {
  Address address;
  if (text.starts_with("unix:")) {
    auto& to = reinterpret_cast<sockaddr_un&>(address.storage);
    to.sun_family = AF_UNIX;
    text.copy(to.sun_path, sizeof(to.sun_path) - 1, 5);
    address.size = sizeof(to);
    address.family = AF_UNIX;
  } else {
    auto& to = reinterpret_cast<sockaddr_in&>(address.storage);
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(std::atoi(text.c_str() + text.rfind(':') + 1)));
    address.size = sizeof(to);
    address.family = AF_INET;
  }
  return address;
}

UniqueFd Socket(int family) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_GE(fd.get(), 0);
  return fd;
}

bool SendAll(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t sent = ::send(fd, data, size, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    data += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

// With a reset where the transport knows one, so that nothing more arrives.
void Cut(const UniqueFd& fd) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

}  // namespace

Proxy::Proxy(const std::string& target, const std::string& socket)
    : stop_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), target_(target) {
  Address address = Parse(socket.empty() ? "127.0.0.1:0" : "unix:" + socket);
  listener_ = Socket(address.family);
  EXPECT_EQ(::bind(listener_.get(), address.get(), address.size), 0);
  EXPECT_EQ(::listen(listener_.get(), 64), 0);
  if (socket.empty()) {
    EXPECT_EQ(::getsockname(listener_.get(), address.get(), &address.size), 0);
    const auto& bound = reinterpret_cast<const sockaddr_in&>(address.storage);
    address_ = absl::StrCat("127.0.0.1:", ntohs(bound.sin_port));
  } else {
    address_ = "unix:" + socket;
  }
  accepting_ = std::jthread([this](const std::stop_token& stop) { Accept(stop); });
}

Proxy::~Proxy() {
  accepting_.request_stop();
  ::eventfd_write(stop_event_.get(), 1);  // stays readable, for everybody
  accepting_.join();
}

void Proxy::Retarget(const std::string& target) {
  std::lock_guard lock(mutex_);
  target_ = target;
}

void Proxy::CutAfter(int64_t bytes) {
  std::lock_guard lock(mutex_);
  limits_.push_back(bytes);
}

int64_t Proxy::cuts() const {
  std::lock_guard lock(mutex_);
  return cuts_;
}

void Proxy::Accept(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    pollfd ready[] = {{listener_.get(), POLLIN, 0}, {stop_event_.get(), POLLIN, 0}};
    ::poll(ready, 2, -1);
    if (stop.stop_requested() || ready[0].revents == 0) continue;
    UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (client.get() < 0) continue;
    Address to;
    {
      std::lock_guard lock(mutex_);
      to = Parse(target_);
    }
    UniqueFd daemon = Socket(to.family);
    // A daemon that is not there: the client sees a connection that ends, and uses up no limit.
    if (::connect(daemon.get(), to.get(), to.size) != 0) continue;
    int64_t limit = kNoLimit;
    {
      std::lock_guard lock(mutex_);
      if (!limits_.empty()) {
        limit = limits_.front();
        limits_.pop_front();
      }
    }
    connections_.emplace_back(
        [this, stop, limit, c = std::move(client), d = std::move(daemon)]() mutable {
          Forward(stop, std::move(c), std::move(d), limit);
        });
  }
  connections_.clear();
}

void Proxy::Forward(const std::stop_token& stop, UniqueFd client, UniqueFd daemon, int64_t limit) {
  std::vector<char> buffer(64 << 10);
  for (int64_t left = limit; !stop.stop_requested();) {
    pollfd ready[] = {
        {client.get(), POLLIN, 0}, {daemon.get(), POLLIN, 0}, {stop_event_.get(), POLLIN, 0}};
    ::poll(ready, 3, -1);
    if (ready[1].revents != 0) {
      const ssize_t size = ::recv(daemon.get(), buffer.data(), buffer.size(), 0);
      if (size <= 0 || !SendAll(client.get(), buffer.data(), static_cast<size_t>(size))) break;
    }
    if (ready[0].revents == 0) continue;
    const auto most =
        static_cast<size_t>(std::min<int64_t>(left, static_cast<int64_t>(buffer.size())));
    const ssize_t size = ::recv(client.get(), buffer.data(), most, 0);
    if (size <= 0 || !SendAll(daemon.get(), buffer.data(), static_cast<size_t>(size))) break;
    if (limit == kNoLimit || (left -= size) > 0) continue;
    std::lock_guard lock(mutex_);
    ++cuts_;
    break;
  }
  Cut(client);
  Cut(daemon);
}

}  // namespace tetrad::e2e
