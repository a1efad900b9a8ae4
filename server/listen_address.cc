// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/listen_address.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "absl/strings/str_cat.h"

#include "engine/support/status_macros.h"
#include "engine/support/unique_fd.h"
#include "server/status.h"

namespace tetrad {
namespace {

constexpr std::string_view kUnixPrefix = "unix:";
constexpr size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;

absl::Status Refuse(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("listen address '", ErrorText(text, 200), "' ",
                                                 std::string(why),
                                                 "; wanted unix:/PATH or HOST:PORT"));
}

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

absl::StatusOr<AddressList> Resolve(const ListenAddress& address) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  const int error =
      ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &list);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(address.ToString(), ": ", ::gai_strerror(error)));
  }
  return AddressList(list, &::freeaddrinfo);
}

bool IsLoopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
  if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) return v6->sin6_addr.s6_addr[12] == 127;
  return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

absl::StatusOr<ListenAddress> ParseUnix(std::string_view text) {
  ListenAddress address;
  address.path = text.substr(kUnixPrefix.size());
  if (address.path.empty() || address.path.front() != '/') {
    return Refuse(text, "has no absolute path");
  }
  if (address.path.size() > kMaxPath) {
    return Refuse(text,
                  absl::StrCat("has a path of ", address.path.size(), " bytes, limit ", kMaxPath));
  }
  if (address.path.find('\0') != std::string::npos) return Refuse(text, "has a NUL in its path");
  return address;
}

}  // namespace

std::string ListenAddress::ToString() const {
  if (kind == Kind::kUnix) return absl::StrCat(std::string(kUnixPrefix), path);
  const bool brackets = host.find(':') != std::string::npos;
  return brackets ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view text) {
  if (text.starts_with(kUnixPrefix)) return ParseUnix(text);
  ListenAddress address{.kind = ListenAddress::Kind::kTcp, .path = {}, .host = {}, .port = 0};
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return Refuse(text, "has no port");
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
    in6_addr ignored;
    if (::inet_pton(AF_INET6, std::string(host).c_str(), &ignored) != 1) {
      return Refuse(text, "has no IPv6 address in its brackets");
    }
  } else if (host.find_first_of(":[]/") != std::string_view::npos) {
    return Refuse(text, "has no valid host (an IPv6 address goes in brackets)");
  }
  if (host.empty()) return Refuse(text, "has no host");
  address.host = host;
  const std::string_view port = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc() || end != port.data() + port.size() || address.port < 0 ||
      address.port > 65535) {
    return Refuse(text, "has no port in [0, 65535]");
  }
  return address;
}

absl::Status CheckExposure(const ListenAddress& address, bool insecure) {
  TETRAD_ASSIGN_OR_RETURN(const AddressList list, Resolve(address));
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    if (!insecure && !IsLoopback(entry->ai_addr)) {
      return absl::InvalidArgumentError(
          absl::StrCat(address.ToString(),
                       " is reachable from other machines without encryption or authentication; "
                       "--insecure-listen allows it"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> NumericAddress(const ListenAddress& address) {
  TETRAD_ASSIGN_OR_RETURN(const AddressList list, Resolve(address));
  char host[NI_MAXHOST];
  const int error = ::getnameinfo(list->ai_addr, list->ai_addrlen, host, sizeof(host), nullptr, 0,
                                  NI_NUMERICHOST);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(address.ToString(), ": ", ::gai_strerror(error)));
  }
  return ListenAddress{ListenAddress::Kind::kTcp, {}, host, address.port}.ToString();
}

absl::Status CheckBindable(const ListenAddress& address) {
  TETRAD_ASSIGN_OR_RETURN(const AddressList list, Resolve(address));
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    const UniqueFd socket(::socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket && errno == EAFNOSUPPORT) continue;
    // As the server will bind it: connections that linger from an earlier run
    // do not matter, a listener does.
    const int one = 1;
    if (!socket || ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
        (entry->ai_family == AF_INET6 &&
         ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one)) != 0) ||
        ::bind(socket.get(), entry->ai_addr, entry->ai_addrlen) != 0 ||
        ::listen(socket.get(), 1) != 0) {
      const int error = errno;
      return absl::UnavailableError(absl::StrCat(
          "cannot listen on ", address.ToString(), ": ",
          error == EADDRINUSE ? "another process listens there" : std::strerror(error)));
    }
  }
  return absl::OkStatus();
}

absl::Status Connect(const ListenAddress& address) {
  TETRAD_ASSIGN_OR_RETURN(const AddressList list, Resolve(address));
  const UniqueFd socket(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket ||
      (::connect(socket.get(), list->ai_addr, list->ai_addrlen) != 0 && errno != EINPROGRESS)) {
    return absl::UnavailableError(absl::StrCat(address.ToString(), ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace tetrad
