// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cpp/channel.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include <grpc/grpc.h>
#include <grpcpp/grpcpp.h>

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
// Between attempts to connect. The library's own wait two minutes in the end, and
// calls fail meanwhile, long after the daemon is back.
constexpr int kFirstReconnectMs = 100;
constexpr int kLongestReconnectMs = 5'000;

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
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstReconnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLongestReconnectMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // an attachment carries none
  // Each Client owns its connection: closing it must not depend on others.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A proxy in the environment is meant for the web, not for the daemon.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return arguments;
}

}  // namespace

std::shared_ptr<grpc::Channel> MakeChannel(const Endpoint& endpoint, const ClientOptions& options) {
  return grpc::CreateCustomChannel(endpoint.GrpcTarget(), grpc::InsecureChannelCredentials(),
                                   MakeChannelArguments(options));
}

}  // namespace tetrad
