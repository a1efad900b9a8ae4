// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cpp/channel.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include <grpc/grpc.h>
#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"

#include "clients/cpp/token_source.h"

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
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // an attachment carries none
  // Each Client owns its connection: closing it must not depend on others.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A proxy in the environment is meant for the web, not for the daemon.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (options.tls.has_value() && !options.tls->server_name.empty()) {
    arguments.SetSslTargetNameOverride(options.tls->server_name);
  }
  return arguments;
}

absl::Status ReadPem(const char* option, const std::string& path, std::string& out) {
  if (path.empty()) return absl::OkStatus();
  std::ifstream file(path);
  out.assign(std::istreambuf_iterator<char>(file), {});
  // The library would take anything and fail every handshake without a word.
  if (out.find("-----BEGIN ") != std::string::npos) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tls.", option, ": ", path,
                   file.is_open() ? " holds nothing in PEM form" : " cannot be read"));
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeCredentials(
    const ClientOptions& options) {
  if (!options.tls.has_value()) return grpc::InsecureChannelCredentials();
  const TlsOptions& tls = *options.tls;
  if (tls.certificate_file.empty() != tls.key_file.empty()) {
    return absl::InvalidArgumentError("tls.certificate_file and tls.key_file belong together");
  }
  grpc::SslCredentialsOptions pems;
  for (const absl::Status& read :
       {ReadPem("root_certificates_file", tls.root_certificates_file, pems.pem_root_certs),
        ReadPem("certificate_file", tls.certificate_file, pems.pem_cert_chain),
        ReadPem("key_file", tls.key_file, pems.pem_private_key)}) {
    if (!read.ok()) return read;
  }
  return grpc::SslCredentials(pems);
}

// Adds the token to each call. Not as credentials of the call: the library
// refuses those on Unix sockets.
class TokenSender final : public grpc::experimental::Interceptor {
 public:
  explicit TokenSender(TokenSource& token) : token_(token) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    using grpc::experimental::InterceptionHookPoints;
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->insert(
          {"authorization", absl::StrCat("Bearer ", token_.Get())});
    }
    methods->Proceed();
  }

 private:
  TokenSource& token_;
};

class TokenSenders final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit TokenSenders(std::unique_ptr<TokenSource> token) : token_(std::move(token)) {}
  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo*) override {
    return new TokenSender(*token_);
  }

 private:
  const std::unique_ptr<TokenSource> token_;
};

bool OnThisMachine(const Endpoint& endpoint) {
  return endpoint.kind == Endpoint::Kind::kUnix || endpoint.host == "localhost" ||
         endpoint.host == "::1" || endpoint.host.starts_with("127.");
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const Endpoint& endpoint,
                                                           const ClientOptions& options) {
  const bool plain = endpoint.kind == Endpoint::Kind::kUnix || !options.tls.has_value();
  auto credentials = MakeCredentials(plain ? ClientOptions{} : options);
  if (!credentials.ok()) return credentials.status();
  const grpc::ChannelArguments arguments = MakeChannelArguments(options);
  if (options.token.empty() && options.token_file.empty()) {
    return grpc::CreateCustomChannel(endpoint.GrpcTarget(), *credentials, arguments);
  }
  if (plain && !OnThisMachine(endpoint)) {
    return absl::InvalidArgumentError(absl::StrCat("token: it would go to ", endpoint.ToString(),
                                                   " in plain text; it needs TLS"));
  }
  absl::StatusOr<std::unique_ptr<TokenSource>> token =
      TokenSource::Open(options.token, options.token_file);
  if (!token.ok()) return token.status();
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> senders;
  senders.push_back(std::make_unique<TokenSenders>(*std::move(token)));
  return grpc::experimental::CreateCustomChannelWithInterceptors(
      endpoint.GrpcTarget(), *credentials, arguments, std::move(senders));
}

}  // namespace tetrad
