// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/health_server.h"

#include <utility>

#include <grpc/grpc.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "engine/support/status_macros.h"
#include "server/bare_builder.h"

namespace tetrad {
namespace {

// Probes are small and few: whoever sends more takes nothing from others.
constexpr int kMaxMessageBytes = 4096;
constexpr int kMaxMetadataBytes = 4096;
constexpr size_t kQuotaBytes = 8 << 20;
constexpr int kConnectionCalls = 64;
constexpr int kTimeoutMs = 10'000;

}  // namespace

absl::StatusOr<std::unique_ptr<HealthServer>> HealthServer::Start(
    ListenAddress address, const SocketPermissions& permissions,
    const std::set<std::string, std::less<>>& services) {
  std::unique_ptr<HealthServer> server(new HealthServer(std::move(address), services));
  ListenAddress& at = server->address_;
  grpc::ServerBuilder builder;
  builder.SetOption(std::make_unique<BareBuilder>());
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kConnectionCalls);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 2 * kTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kTimeoutMs);
  builder.SetResourceQuota(grpc::ResourceQuota("tetradd-health").Resize(kQuotaBytes));
  int port = 0;
  builder.AddListeningPort(at.ToString(), grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&server->health_);
  {
    const PrivateFiles private_files;
    server->grpc_ = builder.BuildAndStart();
  }
  const bool tcp = at.kind == ListenAddress::Kind::kTcp;
  if (server->grpc_ == nullptr || (tcp && port == 0)) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", at.ToString(), "; the log of gRPC above has the reason"));
  }
  if (tcp) {
    at.port = port;
  } else {
    TETRAD_RETURN_IF_ERROR(permissions.Apply(at.path));
  }
  return server;
}

void HealthServer::Shutdown(absl::Duration grace) {
  if (grpc_ == nullptr) return;
  health_.EndWatches();
  grpc_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
  grpc_.reset();
}

}  // namespace tetrad
