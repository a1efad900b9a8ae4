// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The events of a world that concern plans and requests, and what is asked. Of
// which operands: world_operands.cc. What is answered: world_answers.cc.
#include <algorithm>

#include "engine/simulation/world.h"

namespace tetrad::simulation {

void World::Prepare() {
  const size_t shape = static_cast<size_t>(random_.Below(std::ssize(catalogue_.shapes)));
  size_t client = static_cast<size_t>(random_.Below(kClients));
  std::optional<size_t> lease;
  if (random_.OneIn(2)) lease = SomeLease(!random_.OneIn(6));
  const bool foreign = lease && random_.OneIn(10);
  if (lease) client = (leases_[*lease].client + (foreign ? 1 : 0)) % kClients;
  SignatureRequest request = catalogue_.shapes[shape].request;
  request.weights = kNames[random_.OneIn(5) ? 3 : catalogue_.shapes[shape].family];
  Version version;
  absl::StatusCode want = ResolveInModel(request.weights, &version);
  if (want == absl::StatusCode::kOk && version.family != catalogue_.shapes[shape].family) {
    if (request.m.empty()) return;  // would be of another signature
    want = absl::StatusCode::kInvalidArgument;
  }
  if (lease && leases_[*lease].ended)
    want = absl::StatusCode::kAborted;
  else if (foreign)
    want = absl::StatusCode::kPermissionDenied;
  const int64_t live =
      std::count_if(handles_.begin(), handles_.end(), [](const Handle& h) { return h.live; });
  if (want == absl::StatusCode::kOk && live >= engine_->options().max_plan_handles) {
    want = absl::StatusCode::kResourceExhausted;
  }
  // Before a handle is made, the device makes the plan ready.
  if (device_->lost() &&
      (want == absl::StatusCode::kOk || want == absl::StatusCode::kResourceExhausted)) {
    want = absl::StatusCode::kUnavailable;
  }
  const auto prepared =
      engine_->Prepare(Client(client), request, lease ? leases_[*lease].name : std::string());
  const absl::StatusCode got = prepared.status().code();
  trace_.Add(now_, "prepare", client, shape, lease.value_or(99), got);
  Promise(got == want, "a plan is prepared for weights that are there", static_cast<int64_t>(got));
  if (!prepared.ok()) return coverage_.Count(Seen::kPrepareRefused);
  Promise(prepared->plan->signature == catalogue_.shapes[shape].signature,
          "a plan is of the signature asked for");
  Promise(prepared->weights == absl::StrCat(request.weights, "@", version.number),
          "a plan names the weights it was prepared with");
  handles_.push_back({client, lease, prepared->handle, shape, request.weights, now_});
  coverage_.Count(lease ? Seen::kPrepared : Seen::kPreparedIdle);
}

void World::Release() {
  std::vector<size_t> live;
  for (size_t i = 0; i < handles_.size(); ++i) {
    if (handles_[i].live) live.push_back(i);
  }
  if (live.empty()) return;
  Handle& handle = handles_[random_.Pick(live)];
  const absl::Status status = engine_->Release(Client(handle.client), handle.name);
  trace_.Add(now_, "release", handle.client, status.code());
  Promise(status.ok(), "a plan handle can be released");
  handle.live = false;
  coverage_.Count(Seen::kReleased);
}

void World::ExecuteSome() { Execute(random_.OneIn(3)); }

void World::Execute(bool in_blocks) {
  auto owned = std::make_unique<Request>();
  Request& request = *owned;
  request.client = static_cast<size_t>(random_.Below(kClients));
  request.in_blocks = in_blocks;
  if (in_blocks) {
    const auto block = SomeBlock();
    if (!block) return;
    request.client = blocks_[*block].client;
  }
  ExecuteRequest ask;
  std::optional<size_t> handle;
  std::string reference;
  SignatureRequest signature;
  if (!handles_.empty() && random_.OneIn(2)) {
    for (int tries = 0; tries < 8; ++tries) {
      handle = static_cast<size_t>(random_.Below(std::ssize(handles_)));
      if (handles_[*handle].live && (!in_blocks || handles_[*handle].client == request.client)) {
        break;
      }
    }
    request.shape = handles_[*handle].shape;
    if (!in_blocks && !random_.OneIn(10)) request.client = handles_[*handle].client;
    ask.plan = handles_[*handle].name;
    reference = handles_[*handle].weights;
  } else {
    request.shape = static_cast<size_t>(random_.Below(std::ssize(catalogue_.shapes)));
    reference = kNames[random_.OneIn(6) ? 3 : catalogue_.shapes[request.shape].family];
  }
  const Shape& shape = catalogue_.shapes[request.shape];
  if (random_.OneIn(5)) {  // one version, perhaps of the past
    if (const auto at = weights_.find(reference); at != weights_.end()) {
      absl::StrAppend(&reference, "@", std::max<int64_t>(1, at->second.number - random_.OneIn(3)));
      coverage_.Count(Seen::kPinnedVersion);
    }
  }
  if (handle) {
    ask.weights = reference;
  } else {
    signature = shape.request;
    signature.weights = reference;
    ask.signature = &signature;
    if (const auto at = weights_.find(reference.substr(0, reference.find('@')));
        signature.m.empty() && at != weights_.end() && at->second.family != shape.family) {
      return;  // would be of another signature
    }
  }
  MakeMValues(request, true);
  MakeOperands(request);
  BlockOperands operands;
  if (in_blocks) {
    if (!PlaceInBlocks(request, operands)) return;
    ask.blocks = &operands;
  }
  Version version;
  if (ResolveInModel(reference, &version) == absl::StatusCode::kOk &&
      version.family == shape.family) {
    request.version = version;
    request.weights = absl::StrCat(reference.substr(0, reference.find('@')), "@", version.number);
    in_blocks ? ExpectInBlocks(request, operands) : ExpectInline(request);
  }
  if (random_.OneIn(12)) {
    in_blocks ? SpoilRange(request, operands) : SpoilOperands(request);
    coverage_.Count(Seen::kBadOperands);
  }
  request.priority = static_cast<Priority>(random_.Below(3));
  if (random_.OneIn(4)) {
    request.deadline = random_.OneIn(10) ? now_ : now_ + 1 + random_.Below(9'000'000);
  }
  request.keep = !draining_ && random_.OneIn(4);
  request.again = !draining_ && random_.OneIn(10);
  ask.client = Client(request.client);
  ask.operands = {request.a, request.a_scales, request.alpha, request.row_scale, request.m_values};
  ask.deadline = request.deadline;
  ask.priority = request.priority;
  coverage_.Count(in_blocks ? Seen::kInBlocks : Seen::kInline);
  coverage_.Count(handle ? Seen::kByHandle : Seen::kBySignature);
  const Verdict verdict = Judge(request, handle, reference);
  requests_.push_back(std::move(owned));
  Admit(requests_.size() - 1, ask, verdict, handle);
}

World::Verdict World::Judge(Request& request, const std::optional<size_t>& handle,
                            const std::string& reference) const {
  const Shape& shape = catalogue_.shapes[request.shape];
  if (request.deadline <= now_) return {absl::StatusCode::kDeadlineExceeded, true};
  if (closed_ || lost_ || device_->lost()) return {absl::StatusCode::kUnavailable, true};
  if (engine_->Stats().queued >= limits_.queue_depth) {
    return {absl::StatusCode::kResourceExhausted, true};
  }
  if (handle) {
    if (!handles_[*handle].live) return {absl::StatusCode::kAborted, true};
    if (handles_[*handle].client != request.client) {
      return {absl::StatusCode::kPermissionDenied, true};
    }
  }
  Version version;
  const absl::StatusCode found = ResolveInModel(reference, &version);
  if (found != absl::StatusCode::kOk) return {found};
  if (version.family != shape.family) {
    return {handle ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kInvalidArgument};
  }
  if (request.bad != absl::StatusCode::kOk) return {request.bad};
  if (!request.in_blocks && shape.inline_bytes > limits_.staging_bytes) {
    return {absl::StatusCode::kInvalidArgument};
  }
  return {};
}

void World::Admit(size_t index, const ExecuteRequest& ask, Verdict verdict,
                  std::optional<size_t> handle) {
  Request& request = *requests_[index];
  if (handle && !verdict.early) handles_[*handle].used = now_;
  const int64_t strikes = strikes_, meanwhile = meanwhile_;
  const bool closed = closed_;
  request.admitting = true;
  request.id = engine_->Execute(ask, [this, index](absl::StatusOr<Executed> executed) {
    OnDone(index, std::move(executed));
  });
  request.admitting = false;
  if (request.answers == 0) {
    request.order = ++order_;
    trace_.Add(now_, "execute", index, request.client, request.shape, request.in_blocks,
               request.priority);
    return Promise(verdict.code == absl::StatusCode::kOk, "what cannot be is not admitted",
                   static_cast<int64_t>(verdict.code));
  }
  const absl::StatusCode got = request.answer.code();
  trace_.Add(now_, "execute refused", index, request.client, request.shape, request.in_blocks, got);
  if (got == absl::StatusCode::kUnavailable && lossy() && !closed) return;
  if (verdict.code != absl::StatusCode::kOk) {
    Promise(got == verdict.code,
            absl::StrCat("a request is refused for its reason, not: ", request.answer.message()),
            static_cast<int64_t>(verdict.code));
    coverage_.Count(verdict.code == absl::StatusCode::kDeadlineExceeded ? Seen::kDeadlineAtAdmission
                    : verdict.code == absl::StatusCode::kResourceExhausted  ? Seen::kQueueFull
                    : verdict.code == absl::StatusCode::kNotFound           ? Seen::kWeightsMissing
                    : verdict.code == absl::StatusCode::kFailedPrecondition ? Seen::kWeightsDoNotFit
                    : verdict.code == absl::StatusCode::kAborted            ? Seen::kHandleStale
                    : verdict.code == absl::StatusCode::kPermissionDenied   ? Seen::kHandleForeign
                    : verdict.code == absl::StatusCode::kUnavailable        ? Seen::kClosedOrLost
                                                                            : Seen::kInvalid);
    if (verdict.code == absl::StatusCode::kInvalidArgument &&
        request.answer.message().substr(0, 14) == "staging_bytes:") {
      coverage_.Count(Seen::kCannotEverFit);
    }
    return;
  }
  const bool queue_full = request.answer.message().substr(0, 11) == "queue_depth";
  switch (got) {
    case absl::StatusCode::kResourceExhausted:
      Promise(queue_full ? engine_->Stats().queued == limits_.queue_depth
                         : profile_ != Profile::kCalm || strikes_ > strikes,
              "memory is short only where it is short");
      if (request.answer.message().substr(0, 5) == "pool:" && meanwhile == meanwhile_ &&
          index + 1 == requests_.size()) {
        Promise(engine_->Stats().reclaimable == 0, "memory is short only after all came back");
      }
      coverage_.Count(Seen::kStagingOrPoolFull);
      break;
    case absl::StatusCode::kInternal:
      Promise(strikes_ > strikes || device_->lost(), "a request is refused by a fault");
      coverage_.Count(Seen::kFaultAtAdmission);
      break;
    case absl::StatusCode::kUnavailable:
      Promise(closed_, "a request is refused because the engine closes");
      break;
    default:
      Promise(false,
              absl::StrCat("a request is refused for no reason: ", request.answer.message()));
  }
}

void World::Cancel() {
  if (requests_.empty()) return;
  const int64_t recent = std::min<int64_t>(std::ssize(requests_), 10);
  Request& request = *requests_[requests_.size() - 1 - static_cast<size_t>(random_.Below(recent))];
  if (request.id == ExecutionId::kNone) return;
  trace_.Add(now_, "cancel", request.order, request.pending());
  engine_->Cancel(request.id);
  if (!request.pending()) return;
  // In the midst of a step, or when it is late, it may have ended already and
  // not been told.
  const bool ended = stepping_ || (request.deadline <= now_ && !request.handed_over);
  (ended ? request.maybe_cancelled : request.cancelled) = true;
  disturbed_ = true;
}

}  // namespace tetrad::simulation
