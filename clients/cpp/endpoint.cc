// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cpp/endpoint.h"

#include <cerrno>
#include <charconv>
#include <cstring>

#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace tetrad {
namespace {

constexpr std::string_view kUnixScheme = "unix:";
constexpr size_t kMaxSocketPath = sizeof(sockaddr_un::sun_path) - 1;

absl::Status Malformed(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "endpoint '", absl::string_view(text.data(), text.size()),
      "': ", absl::string_view(why.data(), why.size()), "; expected unix:PATH or HOST:PORT"));
}

absl::StatusOr<Endpoint> ParseUnix(std::string_view text) {
  const std::string_view path = text.substr(kUnixScheme.size());
  if (path.empty()) return Malformed(text, "the socket path is empty");
  if (path.starts_with("//")) return Malformed(text, "write unix:/PATH, not unix:///PATH");
  if (path.find('\0') != std::string_view::npos) return Malformed(text, "the path contains NUL");
  if (path.size() > kMaxSocketPath) {
    return Malformed(text, absl::StrCat("a socket path has at most ", kMaxSocketPath,
                                        " bytes, this one has ", path.size()));
  }
  Endpoint endpoint;
  endpoint.kind = Endpoint::Kind::kUnix;
  endpoint.path = path;
  return endpoint;
}

absl::StatusOr<Endpoint> ParseTcp(std::string_view text) {
  if (text.find("://") != std::string_view::npos) {
    return Malformed(text, "a scheme such as http:// is not taken");
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return Malformed(text, "the port is missing");
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return Malformed(text, "an IPv6 address needs brackets, as in [::1]:8472");
  }
  if (host.empty()) return Malformed(text, "the host is empty");
  if (host.find_first_of("/[]@ \t\n") != std::string_view::npos) {
    return Malformed(text, "the host contains a character no host name has");
  }
  Endpoint endpoint;
  endpoint.kind = Endpoint::Kind::kTcp;
  endpoint.host = host;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  if (error != std::errc() || end != port.data() + port.size() || endpoint.port < 1 ||
      endpoint.port > 65535) {
    return Malformed(text, "the port must be a number from 1 to 65535");
  }
  return endpoint;
}

}  // namespace

std::string Endpoint::ToString() const {
  if (kind == Kind::kUnix) return absl::StrCat("unix:", path);
  const bool brackets = host.find(':') != std::string::npos;
  return brackets ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

std::string Endpoint::GrpcTarget() const {
  return kind == Kind::kUnix ? ToString() : absl::StrCat("dns:///", ToString());
}

absl::StatusOr<Endpoint> ParseEndpoint(std::string_view text) {
  if (text.empty()) return Malformed(text, "it is empty");
  return text.starts_with(kUnixScheme) ? ParseUnix(text) : ParseTcp(text);
}

absl::Status CheckReachable(const Endpoint& endpoint) {
  if (endpoint.kind == Endpoint::Kind::kTcp) return absl::OkStatus();
  struct stat info;
  if (stat(endpoint.path.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) {
      return absl::NotFoundError(absl::StrCat("no socket at ", endpoint.path,
                                              "; is the daemon running and listening there?"));
    }
    return absl::PermissionDeniedError(
        absl::StrCat("socket ", endpoint.path, ": ", std::strerror(errno)));
  }
  if (!S_ISSOCK(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(endpoint.path, " is not a socket"));
  }
  if (access(endpoint.path.c_str(), W_OK) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        "socket ", endpoint.path, ": ", std::strerror(errno), " (owner uid ", info.st_uid, ")"));
  }
  return absl::OkStatus();
}

}  // namespace tetrad
