// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/access.h"

#include <vector>

#include "absl/time/clock.h"

#include "engine/support/status_macros.h"
#include "server/status.h"

namespace tetrad {
namespace {

constexpr char kAuthorization[] = "authorization";
constexpr std::string_view kMetricsPage = "/metrics";

bool Lasts(Method method) {
  switch (method) {
    case Method::kUpload:
    case Method::kLoad:
    case Method::kExecuteStream:
    case Method::kAttach:
    case Method::kWrite:
    case Method::kRead:
    case Method::kWait:
    case Method::kWatch:
      return true;
    default:
      return false;
  }
}

// Two headers are as wrong as a malformed one: which one counts?
Credential CredentialOf(const grpc::CallbackServerContext& context) {
  const auto [begin, end] = context.client_metadata().equal_range(kAuthorization);
  if (begin == end) return {};
  if (std::next(begin) != end) return {.kind = Credential::Kind::kMalformed};
  return Credential::OfHeader({begin->second.data(), begin->second.size()});
}

}  // namespace

Access::Access(const std::string& path)
    : restricted_(!path.empty()), file_(path, AccessTable::kMaxFileBytes) {}

absl::Status Access::Load() {
  if (!restricted_) return absl::OkStatus();
  file_.Look();
  TETRAD_RETURN_IF_ERROR(file_.content().status());
  TETRAD_ASSIGN_OR_RETURN(AccessTable table, AccessTable::Parse(*file_.content(), file_.path()));
  table_.store(std::make_shared<const AccessTable>(std::move(table)));
  return absl::OkStatus();
}

void Access::Reload(Log& log) {
  if (!restricted_) return;
  if (file_.Look()) {
    absl::Status status = file_.content().status();
    if (status.ok()) {
      absl::StatusOr<AccessTable> read = AccessTable::Parse(*file_.content(), file_.path());
      status = read.status();
      if (read.ok()) {
        const auto taken = std::make_shared<const AccessTable>(*std::move(read));
        table_.store(taken);
        log.Info("access file read", {{"tokens", static_cast<int64_t>(taken->tokens())},
                                      {"subjects", static_cast<int64_t>(taken->subjects())}});
      }
    }
    refused_ = !status.ok();
    if (!status.ok()) {
      log.Error("access file refused, the old one stays",
                {{"error", ToGrpc(status).error_message()}});
    }
  }
  const std::shared_ptr<const AccessTable> table = this->table();
  const absl::Time now = absl::Now();
  std::vector<std::pair<grpc_call*, absl::Status>> ending;
  {
    const std::lock_guard lock(mutex_);
    for (Lasting* call : lasting_) {
      if (!call->ended.ok()) continue;
      call->ended = table
                        ->Decide(call->peer, call->credential, GroupsOf(call->method),
                                 MethodName(call->method), now)
                        .status;
      if (call->ended.ok()) continue;
      // The call may end by itself once the lock is gone.
      ::grpc_call_ref(call->call);
      ending.emplace_back(call->call, call->ended);
    }
  }
  // Unlike TryCancel() of the call's context this tells the client why.
  for (const auto& [call, status] : ending) {
    const grpc::Status told = ToGrpc(status);
    ::grpc_call_cancel_with_status(call, static_cast<grpc_status_code>(told.error_code()),
                                   told.error_message().c_str(), nullptr);
    ::grpc_call_unref(call);
  }
}

AccessTable::Verdict Access::Check(const Identities& identities, Method method,
                                   grpc::CallbackServerContext& context, Membership& lasting) {
  Peer peer = identities.Of(context);
  if (!restricted_) {
    return {peer.subject.empty() ? std::string(AnonymousName(peer.origin))
                                 : SubjectClient(peer.subject),
            absl::OkStatus()};
  }
  const Credential credential = CredentialOf(context);
  const auto decide = [&] {
    return table()->Decide(peer, credential, GroupsOf(method), MethodName(method), absl::Now());
  };
  AccessTable::Verdict verdict = decide();
  if (!verdict.status.ok() || !Lasts(method)) return verdict;
  lasting.call_.reset(new Lasting{peer, credential, method, context.c_call(), absl::OkStatus()});
  lasting.access_ = this;
  {
    const std::lock_guard lock(mutex_);
    lasting_.insert(lasting.call_.get());
  }
  // A reload just now may have missed it.
  return decide();
}

AccessTable::Verdict Access::CheckMetrics(std::string_view authorization) const {
  const Peer peer{.origin = Origin::kHttp};
  if (!restricted_) return {std::string(AnonymousName(peer.origin)), absl::OkStatus()};
  const Credential credential =
      authorization.empty() ? Credential{} : Credential::OfHeader(authorization);
  return table()->Decide(peer, credential, Groups::kMetrics, kMetricsPage, absl::Now());
}

Access::Membership::~Membership() { Leave(); }

void Access::Membership::Leave() {
  if (access_ == nullptr) return;
  const std::lock_guard lock(access_->mutex_);
  access_->lasting_.erase(call_.get());
}

absl::Status Access::Membership::ended() const {
  if (access_ == nullptr) return absl::OkStatus();
  const std::lock_guard lock(access_->mutex_);
  return call_->ended;
}

}  // namespace tetrad
