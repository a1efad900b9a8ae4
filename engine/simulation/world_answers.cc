// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What a world sees of its requests after admission: their hand-over to the
// device and their answers.
#include <algorithm>

#include "engine/simulation/world.h"

namespace tetrad::simulation {

void World::OnHandOver(const SimulatedDevice::HandOver& hand_over) {
  const absl::Status& status = hand_over.status;
  launched_at_[hand_over.ticket] = now_;
  if (device_->lost()) return;                                       // ends like all others
  if (absl::IsResourceExhausted(status) && hand_over.ahead) return;  // and is asked again
  const auto at = std::find_if(requests_.begin(), requests_.end(), [&](const auto& r) {
    return r->launchable() && r->tag != 0 &&
           r->tag == (r->in_blocks ? hand_over.c_tag : hand_over.a_tag);
  });
  if (at == requests_.end()) {
    Promise(std::any_of(requests_.begin(), requests_.end(),
                        [](const auto& r) { return r->launchable() && r->tag == 0; }),
            "what is launched was asked for");
    return;
  }
  Request& request = **at;
  trace_.Add(now_, "  launch", at - requests_.begin(), hand_over.ticket, status.code());
  Promise(!request.handed_over, "a request is launched once");
  Promise(!request.cancelled, "what was cancelled is not launched");
  Promise(request.deadline > now_, "what is late is not launched");
  if (request.admitting) coverage_.Count(Seen::kLaunchedInExecute);
  for (const auto& other : requests_) {
    if (!other->pending() || other->tag == 0 || other->handed_over || other->cancelled ||
        other->maybe_cancelled || other->deadline <= now_) {
      continue;
    }
    // Between clients of one priority the queue decides; launch_queue_test.cc looks at how.
    const bool in_turn =
        other->client != request.client || (!request.admitting && other->order >= request.order);
    Promise(other->priority > request.priority || (other->priority == request.priority && in_turn),
            "launched by priority, and of one client in order of arrival", other->order);
  }
  request.handed_over = true;
  if (status.ok()) {
    tickets_[hand_over.ticket] = static_cast<size_t>(at - requests_.begin());
  } else {
    request.refused = true;
  }
}

void World::OnDone(size_t index, absl::StatusOr<Executed> executed) {
  Request& request = *requests_[index];
  ++request.answers;
  Promise(request.answers == 1, "each request is answered once", request.answers);
  Promise(engine_ != nullptr, "nothing is answered after the engine is gone");
  request.answer = executed.status();
  if (request.order > 0) {
    trace_.Add(now_, "answer", index, request.answer.code());
    CheckAnswer(index);
    if (request.in_blocks) CheckOutputBlock(request);
    if (executed.ok()) {
      if (request.keep && !draining_) {
        held_.push_back({index, *std::move(executed)});
      } else {
        CheckOutput(request, *executed);
      }
    }
  }
  // What it gives back is back before a client asks again.
  executed = absl::CancelledError();
  if (request.again && depth_ == 0 && !draining_) {
    coverage_.Count(Seen::kFromDone);
    Execute(false);
  }
}

void World::CheckAnswer(size_t index) {
  const Request& request = *requests_[index];
  const bool told_late = request.deadline <= now_;
  const bool known = request.tag != 0;
  const int64_t detail = request.order;
  switch (request.answer.code()) {
    case absl::StatusCode::kOk:
      Promise(!request.cancelled, "what was cancelled has no result", detail);
      Promise(!told_late, "there is no result after the deadline", detail);
      Promise(!known || request.completed, "there is no result before the launch is over", detail);
      Promise(!request.bad_counts, "bad counts give no result", detail);
      coverage_.Count(request.in_blocks ? Seen::kOkInBlocks : Seen::kOk);
      ++done_launches_;
      break;
    case absl::StatusCode::kInvalidArgument:
      Promise(request.bad_counts && request.completed && !request.cancelled && !told_late,
              "only bad counts are found by a launch", detail);
      coverage_.Count(Seen::kBadCounts);
      ++done_launches_;
      break;
    case absl::StatusCode::kCancelled:
      Promise(request.cancelled || request.maybe_cancelled, "only what was cancelled ends so",
              detail);
      Promise(!request.failed, "a failed launch is told, cancelled or not", detail);
      coverage_.Count(request.handed_over ? Seen::kCancelledOnDevice : Seen::kCancelled);
      break;
    case absl::StatusCode::kDeadlineExceeded:
      Promise(told_late && !request.cancelled && !request.failed, "only what is late ends so",
              detail);
      coverage_.Count(request.handed_over ? Seen::kDeadlineOnDevice : Seen::kDeadlineQueued);
      break;
    case absl::StatusCode::kUnavailable:
      Promise((closed_ && !request.handed_over) || lossy(),
              "only an engine that closes or lost its device is unavailable", detail);
      if (!lossy()) coverage_.Count(Seen::kShutDown);
      break;
    case absl::StatusCode::kInternal:
      Promise(!known || request.failed || request.refused, "only a launch that failed says so",
              detail);
      coverage_.Count(request.failed ? Seen::kFailed : Seen::kRefused);
      break;
    case absl::StatusCode::kResourceExhausted:
      Promise(strikes_ > 0 && (!known || request.refused), "only a refused launch ends so", detail);
      coverage_.Count(Seen::kRefused);
      break;
    default:
      Promise(false, "an answer that no request can get",
              static_cast<int64_t>(request.answer.code()));
  }
}

void World::CheckOutput(const Request& request, const Executed& executed) {
  const Shape& shape = catalogue_.shapes[request.shape];
  Promise(executed.weights() == request.weights,
          "a result names the weights resolved at admission");
  Promise(executed.plan().signature == shape.signature, "a result is of the signature asked for");
  Promise(executed.output_bytes() == (request.in_blocks ? 0 : shape.wire.c_bytes),
          "output has the bytes of the signature", executed.output_bytes());
  std::vector<std::byte> output(static_cast<size_t>(executed.output_bytes()));
  const absl::Status status = executed.CopyOutput(output);
  if (lossy()) return;
  Promise(status.ok(), "output can be copied", static_cast<int64_t>(status.code()));
  if (!request.in_blocks) {
    Promise(output == request.expected, "output is the product of what was sent", request.order);
  }
}

// Also of what got no result: its output is untouched or all there.
void World::CheckOutputBlock(Request& request) {
  Block& block = blocks_[request.output.block];
  if (!block.named || lossy()) return;
  const int64_t begin = request.output.begin;
  if (request.expected.empty()) return;
  const std::span<std::byte> model =
      std::span(block.bytes).subspan(static_cast<size_t>(begin), request.expected.size());
  std::vector<std::byte> got(model.begin(), model.end());
  const absl::Status status =
      engine_->Read(absl::StrCat("client", block.client), block.name, begin, got);
  Promise(status.ok(), "an output block can be read", static_cast<int64_t>(status.code()));
  const bool untouched = std::equal(got.begin(), got.end(), model.begin());
  if (request.answer.ok()) {
    Promise(got == request.expected, "an output block holds the product", request.order);
  } else if (!request.handed_over || request.refused) {
    Promise(untouched, "what was not launched writes nothing", request.order);
  } else if (!request.failed && !request.bad_counts) {
    Promise(untouched || got == request.expected, "an output block holds nothing else",
            request.order);
  }
  std::copy(got.begin(), got.end(), model.begin());
}

void World::ReleaseHeld() {
  if (held_.empty()) return;
  const size_t index = static_cast<size_t>(random_.Below(std::ssize(held_)));
  trace_.Add(now_, "take held output", held_[index].request);
  CheckOutput(*requests_[held_[index].request], held_[index].executed);
  held_.erase(held_.begin() + static_cast<ptrdiff_t>(index));
  coverage_.Count(Seen::kHeldOutput);
}

}  // namespace tetrad::simulation
