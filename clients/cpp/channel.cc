// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cpp/channel.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include <grpc/grpc.h>
#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"

#include "clients/cpp/small_file.h"

namespace tetrad {
namespace {

// Bulk operands in default 16 KiB frames and 64 KiB windows spend their time
// on frame headers and window updates; these make inline payloads two to three
// times as fast.
constexpr int kMaxFrameBytes = (1 << 24) - 1;  // the limit of HTTP/2
constexpr int kLookAheadBytes = 64 << 20;
// A dead peer is noticed in less than a minute; the daemon permits 10 s.
constexpr int kKeepaliveMs = 30'000;
constexpr int kKeepaliveTimeoutMs = 20'000;
// Between attempts to connect: the first time this long, then 1.6 times as long as
// the time before, each a fifth more or less by chance (that is in the RPC library).
// The library's own wait two minutes in the end, and calls fail meanwhile, long after
// the daemon is back.
constexpr int kFirstBackoffMs = 100;
constexpr int kLongestBackoffMs = 5'000;

grpc::ChannelArguments MakeChannelArguments(const ClientOptions& options) {
  grpc::ChannelArguments arguments;
  const int limit = static_cast<int>(
      std::clamp<int64_t>(options.max_message_bytes, 1, std::numeric_limits<int>::max()));
  arguments.SetMaxSendMessageSize(limit);
  arguments.SetMaxReceiveMessageSize(limit);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxFrameBytes);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookAheadBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstBackoffMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLongestBackoffMs);
  // The name is misleading: how long an attempt may last, whatever the back-off.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kLongestBackoffMs);
  if (options.tls.has_value() && !options.tls->server_name.empty()) {
    arguments.SetSslTargetNameOverride(options.tls->server_name);
  }
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // an attachment carries none
  // Each Client owns its connection: closing it must not depend on others.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A proxy in the environment is meant for the web, not for the daemon.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return arguments;
}

absl::Status ReadPem(std::string_view option, const std::string& path, std::string& out) {
  if (path.empty()) return absl::OkStatus();
  absl::StatusOr<std::string> text = ReadSmallFile(option, path);
  if (!text.ok()) return text.status();
  // The library would take anything and fail every handshake without a word.
  if (text->find("-----BEGIN ") == std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(option), ": ", path, " holds nothing in PEM form"));
  }
  out = *std::move(text);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeCredentials(
    const ClientOptions& options) {
  if (!options.tls.has_value()) return grpc::InsecureChannelCredentials();
  const TlsOptions& tls = *options.tls;
  if (tls.certificate_file.empty() != tls.key_file.empty()) {
    return absl::InvalidArgumentError("tls: certificate_file and key_file belong together");
  }
  grpc::SslCredentialsOptions pem;
  const struct {
    std::string_view option;
    const std::string& path;
    std::string& out;
  } kFiles[] = {{"tls.root_certificates_file", tls.root_certificates_file, pem.pem_root_certs},
                {"tls.certificate_file", tls.certificate_file, pem.pem_cert_chain},
                {"tls.key_file", tls.key_file, pem.pem_private_key}};
  for (const auto& file : kFiles) {
    if (absl::Status read = ReadPem(file.option, file.path, file.out); !read.ok()) return read;
  }
  return grpc::SslCredentials(pem);
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const Endpoint& endpoint,
                                                           const ClientOptions& options) {
  ClientOptions applied = options;
  if (endpoint.kind == Endpoint::Kind::kUnix) applied.tls.reset();
  auto credentials = MakeCredentials(applied);
  if (!credentials.ok()) return credentials.status();
  return grpc::CreateCustomChannel(endpoint.GrpcTarget(), *credentials,
                                   MakeChannelArguments(applied));
}

}  // namespace tetrad
