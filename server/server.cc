// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/server.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <grpc/grpc.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <prometheus/text_serializer.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "engine/checkpoint/root.h"
#include "engine/checkpoint_load.h"
#include "engine/machine_limits.h"
#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"
#include "server/access.h"
#include "server/admin_service.h"
#include "server/bare_builder.h"
#include "server/call_gate.h"
#include "server/gemm_service.h"
#include "server/health_server.h"
#include "server/health_service.h"
#include "server/http_server.h"
#include "server/listeners.h"
#include "server/memory_service.h"
#include "server/metrics.h"
#include "server/open_streams.h"
#include "server/refusals.h"
#include "server/service_context.h"
#include "server/status_service.h"
#include "server/tickets.h"
#include "server/tls_credentials.h"
#include "server/tls_files.h"
#include "server/weights_service.h"
#include "server/worker_pool.h"

namespace tetrad {
namespace {

constexpr int kWorkThreads = 4;
constexpr size_t kWorkQueue = 1024;
constexpr int kReplyThreads = 4;
constexpr int kLoadThreads = 2;
constexpr size_t kLoadQueue = 16;
constexpr size_t kReadQueue = 1024;  // jobs that came late and have nothing to do any more, too

// Room for what a request carries beside its operands, so that one just over
// the inline limit is refused by us, with a reason, and not by the library.
constexpr int64_t kMessageSlackBytes = 64 << 20;

// The largest HTTP/2 frame there is, and how far a peer may send ahead: with
// the defaults, large operands move at a fraction of the speed.
constexpr int kMaxFrameBytes = (16 << 20) - 1;
constexpr int kLookAheadBytes = 64 << 20;

// Clients may ping idle connections this often; gRPC's own floor of 5 minutes
// disconnects those with the usual 10 s.
constexpr int kMinPingIntervalMs = 5'000;
constexpr int kHandshakeTimeoutMs = 10'000;

// A peer that vanished, or whose process stands still, is noticed in less than
// a minute, and what its streams hold is given up. Clients answer pings in
// their library, also while they read nothing, so this parts with nobody whose
// network takes a frame of 16 MiB in half a minute.
constexpr int kKeepaliveMs = 20'000;
constexpr int kKeepaliveTimeoutMs = 30'000;

// Reflection is the one service that takes threads of the library's own.
constexpr int kSyncThreads = 8;

// That read one checkpoint, the one that loads it included.
int LoadThreads(const Config& config) {
  return config.load_threads > 0 ? static_cast<int>(config.load_threads)
                                 : DefaultLoadThreads(ReadMachineLimits().threads);
}

}  // namespace

class Server::Impl {
 public:
  Impl(const Config& config, Listeners listeners, Engine& engine, Log& log,
       std::function<void()> drain)
      : config_(config),
        listeners_(std::move(listeners)),
        engine_(engine),
        log_(log),
        work_("tetrad-work", kWorkThreads, kWorkQueue),
        replies_("tetrad-reply", kReplyThreads,
                 static_cast<size_t>(config.queue_depth + engine.device_limits().max_in_flight),
                 absl::ToChronoNanoseconds(engine.options().spin)),
        load_team_{
            LoadThreads(config) - 1,
            [this](absl::AnyInvocable<void()>&& job) { return readers_.Post(std::move(job)); }},
        readers_("tetrad-read", load_team_.helpers, kReadQueue),
        loads_("tetrad-load", kLoadThreads, kLoadQueue),
        context_{config,
                 engine,
                 metrics_,
                 gate_,
                 client_calls_,
                 streams_,
                 log,
                 access_,
                 refusals_,
                 checkpoint_root_,
                 call_bytes_,
                 work_,
                 replies_,
                 loads_,
                 load_team_,
                 absl::Now(),
                 Identities(listeners_.grpc, !config.tls_client_ca.empty())},
        admin_(context_, memory_.attachments(), std::move(drain)) {}

  absl::Status Start();
  void Reload();
  void SetServing(bool serving);
  void Shutdown(absl::Duration grace);

  std::vector<std::string> grpc_addresses;
  std::string http_address;
  std::string health_address;
  CallGate& gate() { return gate_; }
  OpenStreams& streams() { return streams_; }
  Tickets& tickets() { return tickets_; }

 private:
  absl::Status StartGrpc();
  absl::Status StartHttp();
  absl::Status StartHealth();
  HttpServer::Answer MayScrape(const HttpServer::Asker& asker);
  void SetArguments(grpc::ServerBuilder& builder) const;
  std::string MetricsPage() const;

  const Config& config_;
  Listeners listeners_;
  Engine& engine_;
  Log& log_;
  std::optional<Root> checkpoint_root_;
  Metrics metrics_;
  Access access_{config_.access};
  Refusals refusals_{log_, metrics_};
  std::unique_ptr<TlsFiles> tls_;  // none: TCP is plain text
  CallGate gate_;
  ClientCalls client_calls_{config_.client_calls};
  OpenStreams streams_;
  ByteBudget call_bytes_{config_.call_bytes};
  WorkerPool work_;
  WorkerPool replies_;
  const LoadTeam load_team_;
  WorkerPool readers_;  // help whatever loads at the moment
  WorkerPool loads_;
  const ServiceContext context_;
  const std::set<std::string, std::less<>> services_{"",
                                                     v1::Gemm::service_full_name(),
                                                     v1::Weights::service_full_name(),
                                                     v1::Memory::service_full_name(),
                                                     v1::Status::service_full_name(),
                                                     v1::Admin::service_full_name()};
  HealthService health_{services_};
  Tickets tickets_{context_};
  GemmService gemm_{context_, tickets_};
  WeightsService weights_{context_};
  MemoryService memory_{context_};
  StatusService status_{context_, tickets_};
  AdminService admin_;
  std::unique_ptr<HealthServer> probes_;
  std::vector<std::shared_ptr<grpc::ServerCredentials>> credentials_;  // of grpc_
  std::unique_ptr<grpc::Server> grpc_;
  std::unique_ptr<HttpServer> http_;
};

absl::Status Server::Impl::Start() {
  if (!config_.checkpoint_root.empty()) {
    TETRAD_ASSIGN_OR_RETURN(checkpoint_root_, Root::Open(config_.checkpoint_root));
  }
  TETRAD_RETURN_IF_ERROR(access_.Load());
  if (!config_.tls_certificate.empty()) {
    TETRAD_ASSIGN_OR_RETURN(tls_, TlsFiles::Open(config_, log_));
  }
  // Never given back: the last user of the library would wait for its threads,
  // one of which may sleep in a poll of ten seconds. They end with the process.
  grpc_init();
  TETRAD_RETURN_IF_ERROR(StartHealth());
  TETRAD_RETURN_IF_ERROR(StartGrpc());
  TETRAD_RETURN_IF_ERROR(StartHttp());
  SetServing(true);
  return absl::OkStatus();
}

void Server::Impl::SetServing(bool serving) {
  health_.SetServing(serving);
  if (probes_ != nullptr) probes_->health().SetServing(serving);
}

void Server::Impl::Reload() {
  if (tls_ != nullptr) tls_->Reload(log_);
  access_.Reload(log_);
}

absl::Status Server::Impl::StartHealth() {
  if (!listeners_.health.has_value()) return absl::OkStatus();
  TETRAD_ASSIGN_OR_RETURN(
      probes_, HealthServer::Start(*listeners_.health, listeners_.permissions, services_));
  health_address = probes_->address().ToString();
  return absl::OkStatus();
}

void Server::Impl::SetArguments(grpc::ServerBuilder& builder) const {
  const auto message_limit =
      static_cast<int>(std::min<int64_t>(config_.max_inline_bytes + kMessageSlackBytes, INT32_MAX));
  builder.SetMaxReceiveMessageSize(message_limit);
  builder.SetMaxSendMessageSize(message_limit);
  // Off: with it, two daemons could listen on one port, each getting some calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // A megabyte of compressed zeros would be a gigabyte here before any limit of
  // size is looked at, and operands do not compress.
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxFrameBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookAheadBytes);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  // Without end: an Attach stream carries no data for days.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE,
                             static_cast<int>(config_.max_metadata_bytes));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             static_cast<int>(config_.connection_calls));
  // Bounds what arrives and is not yet a request: beyond it the library ends the
  // largest streams with RESOURCE_EXHAUSTED.
  builder.SetResourceQuota(
      grpc::ResourceQuota("tetradd")
          .Resize(static_cast<size_t>(std::min(config_.staging_bytes, INT64_MAX - message_limit) +
                                      message_limit))
          .SetMaxThreads(kSyncThreads));
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, 1);
}

absl::Status Server::Impl::StartGrpc() {
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  if (config_.no_reflection) builder.SetOption(std::make_unique<BareBuilder>());
  SetArguments(builder);
  std::vector<ListenAddress>& addresses = listeners_.grpc;
  std::vector<int> ports(addresses.size(), 0);
  for (size_t i = 0; i < addresses.size(); ++i) {
    const bool tls = tls_ != nullptr && addresses[i].kind == ListenAddress::Kind::kTcp;
    credentials_.push_back(tls ? TlsCredentials(*tls_, config_.tls_require_client)
                               : grpc::InsecureServerCredentials());
    builder.AddListeningPort(addresses[i].ToString(), credentials_.back(), &ports[i]);
  }
  builder.RegisterService(&health_);
  builder.RegisterService(&gemm_);
  builder.RegisterService(&weights_);
  builder.RegisterService(&memory_);
  builder.RegisterService(&status_);
  builder.RegisterService(&admin_);
  {
    const PrivateFiles private_files;
    grpc_ = builder.BuildAndStart();
  }
  for (size_t i = 0; i < addresses.size(); ++i) {
    const bool tcp = addresses[i].kind == ListenAddress::Kind::kTcp;
    if (grpc_ == nullptr || (tcp && ports[i] == 0)) {
      return absl::UnavailableError(absl::StrCat("cannot listen on ", addresses[i].ToString(),
                                                 "; the log of gRPC above has the reason"));
    }
    if (tcp) {
      addresses[i].port = ports[i];
    } else {
      TETRAD_RETURN_IF_ERROR(listeners_.permissions.Apply(addresses[i].path));
    }
    grpc_addresses.push_back(addresses[i].ToString());
  }
  return absl::OkStatus();
}

absl::Status Server::Impl::StartHttp() {
  if (!listeners_.http.has_value()) return absl::OkStatus();
  TETRAD_ASSIGN_OR_RETURN(
      http_,
      HttpServer::Start(*listeners_.http,
                        {.metrics = [this] { return MetricsPage(); },
                         .ready = [this] { return !gate_.closing(); },
                         .may_scrape = [this](const auto& asker) { return MayScrape(asker); }}));
  http_address = http_->address().ToString();
  return absl::OkStatus();
}

HttpServer::Answer Server::Impl::MayScrape(const HttpServer::Asker& asker) {
  const AccessTable::Verdict verdict = access_.CheckMetrics(asker.authorization);
  if (verdict.status.ok()) return HttpServer::Answer::kPage;
  const std::optional<ErrorDetail> detail = DetailOf(verdict.status);
  refusals_.Note({.client = verdict.client,
                  .method = "GET /metrics",
                  .peer = asker.peer,
                  .request = {},
                  .reason = detail.has_value() ? detail->reason : Reason::kNotAllowed});
  return absl::IsUnauthenticated(verdict.status) ? HttpServer::Answer::kUnauthorized
                                                 : HttpServer::Answer::kForbidden;
}

std::string Server::Impl::MetricsPage() const {
  const Metrics::Levels levels{
      .engine = engine_.Stats(),
      .plan_capacity = config_.plan_capacity,
      .staging_limit_bytes = config_.staging_bytes,
      .call_bytes = call_bytes_.used_bytes(),
      .call_limit_bytes = config_.call_bytes,
      .clients = client_calls_.clients(),
      .refused_client_calls = client_calls_.refused(),
      .tickets = tickets_.stats(),
      .ticket_bytes = tickets_.used_bytes(),
      .ticket_limit_bytes = config_.ticket_bytes,
      .attach_streams = streams_.open(StreamKind::kAttach),
      .execute_streams = streams_.open(StreamKind::kExecute),
      .health_watches =
          health_.open_watches() + (probes_ == nullptr ? 0 : probes_->health().open_watches()),
      .serving = !gate_.closing(),
      .tls_refused = tls_ != nullptr && tls_->refused(),
      .access_refused = access_.refused(),
      .certificate_expires = tls_ != nullptr ? tls_->current()->expires : absl::InfiniteFuture()};
  return prometheus::TextSerializer().Serialize(metrics_.Collect(levels, engine_.device_limits()));
}

void Server::Impl::Shutdown(absl::Duration grace) {
  health_.EndWatches();
  if (grpc_ != nullptr) {
    grpc_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
    grpc_.reset();
  }
  tickets_.EndAll();
  // Last: until then whoever probes hears that the daemon is not serving.
  if (probes_ != nullptr) probes_->Shutdown(absl::ZeroDuration());
  http_.reset();
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() { Shutdown(absl::ZeroDuration()); }

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Config& config, Listeners listeners,
                                                      Engine& engine, Log& log,
                                                      std::function<void()> drain) {
  std::unique_ptr<Server> server(new Server(
      std::make_unique<Impl>(config, std::move(listeners), engine, log, std::move(drain))));
  TETRAD_RETURN_IF_ERROR(server->impl_->Start());
  return server;
}

const std::vector<std::string>& Server::grpc_addresses() const { return impl_->grpc_addresses; }
const std::string& Server::http_address() const { return impl_->http_address; }
const std::string& Server::health_address() const { return impl_->health_address; }
void Server::Reload() { impl_->Reload(); }

void Server::BeginDrain() {
  impl_->gate().AnnounceClosing();
  impl_->SetServing(false);
  impl_->streams().Enter(DrainStage::kAnnounced);
}

void Server::CloseGate() {
  impl_->gate().Close();
  impl_->streams().Enter(DrainStage::kClosed);
  impl_->tickets().Close();
}
int Server::idle_fd() const { return impl_->gate().idle_fd(); }
int64_t Server::calls_inside() const { return impl_->gate().inside(); }
void Server::Shutdown(absl::Duration grace) { impl_->Shutdown(grace); }

}  // namespace tetrad
