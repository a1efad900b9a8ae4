// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Entry points of streams and events, and the threads that do the work.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/cuda/simulated_driver/machine.h"

namespace tetrad::cuda::simulated {
namespace {

int64_t Now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

}  // namespace

bool Machine::MayBegin(const Stream& stream) const {
  if (stream.queue.empty() || held_) return false;
  const Work& work = stream.queue.front();
  return work.exec == nullptr || work.exec->completed == work.exec_turn;
}

void Machine::RunStream(std::shared_ptr<Stream> stream) {
  Lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] {
      const bool dropped = broken_ != CUDA_SUCCESS || stream->abandoned;
      return stream->queue.empty() ? stream->closing : dropped || MayBegin(*stream);
    });
    if (stream->queue.empty()) break;
    if (broken_ != CUDA_SUCCESS || stream->abandoned) {
      stream->completed += stream->queue.size();
      stream->queue.clear();
      changed_.notify_all();
      continue;
    }
    // It stays in the queue, seen by whoever takes its memory away.
    const Work& work = stream->queue.front();
    const auto delay = delay_;
    const bool breaks = work_break_ != CUDA_SUCCESS && work_until_break_-- == 0;
    const CUresult broken_by = std::exchange(work_break_, breaks ? CUDA_SUCCESS : work_break_);
    lock.unlock();
    if (delay > delay.zero()) std::this_thread::sleep_for(delay);
    std::string why;
    CUresult result = breaks ? broken_by : CUDA_SUCCESS;
    if (work.run != nullptr && !breaks) {
      std::shared_lock memory(memory_mutex_);
      result = work.run(&why);
    }
    lock.lock();
    Finish(*stream, result, std::move(why));
  }
  stream->ended = true;
}

void Machine::Finish(Stream& stream, CUresult result, std::string why) {
  Work work = std::move(stream.queue.front());
  stream.queue.pop_front();
  if (result != CUDA_SUCCESS) {
    Break(result, std::move(why));
  } else if (!why.empty()) {
    NoteMisuse(std::move(why));
  }
  if (work.exec_ends) ++work.exec->completed;
  if (work.event != nullptr) {
    work.event->completed = work.event_turn;
    work.event->time_ns = Now();
  }
  ++stream.completed;
  changed_.notify_all();
}

CUresult Machine::FindStream(CUstream handle, std::shared_ptr<Stream>* stream) const {
  if (const CUresult result = RequireContext(); result != CUDA_SUCCESS) return result;
  const auto found = streams_.find(handle);
  if (found == streams_.end()) return CUDA_ERROR_INVALID_HANDLE;
  *stream = found->second;
  return CUDA_SUCCESS;
}

CUresult Machine::FindIdleStream(CUstream handle, const char* call,
                                 std::shared_ptr<Stream>* stream) {
  if (handle == nullptr) {
    return Misused(absl::StrCat(call, " on the legacy stream, which synchronises with all others"),
                   CUDA_ERROR_INVALID_HANDLE);
  }
  const CUresult result = FindStream(handle, stream);
  if (result == CUDA_ERROR_INVALID_HANDLE) {
    return Misused(absl::StrCat(call, " on a stream that is not live"), result);
  }
  if (result != CUDA_SUCCESS || (*stream)->capture == nullptr) return result;
  (*stream)->capture_invalid = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult Machine::RefuseInCapture(const char* call) {
  for (const auto& [handle, stream] : streams_) {
    if (stream->capture == nullptr || stream->capture_any_thread ||
        stream->capture_thread != std::this_thread::get_id()) {
      continue;
    }
    stream->capture_invalid = true;
    return Misused(absl::StrCat(call, " in a capture of the same thread"),
                   CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return CUDA_SUCCESS;
}

void Machine::Enqueue(Stream& stream, Work work) {
  ++stream.enqueued;
  stream.queue.push_back(std::move(work));
  changed_.notify_all();
}

CUresult Machine::WaitFor(Lock& lock, Stream& stream) {
  const uint64_t target = stream.enqueued;
  changed_.wait(lock, [&] { return broken_ != CUDA_SUCCESS || stream.completed >= target; });
  return broken_;
}

CUresult Machine::StreamCreateWithPriority(CUstream* handle, unsigned int flags, int) {
  if (handle == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::lock_guard lock(mutex_);
  CUcontext context;
  if (const CUresult result = FindContext(&context); result != CUDA_SUCCESS) return result;
  std::erase_if(contexts_.at(context).closed, [](const std::shared_ptr<Stream>& closed) {
    if (closed->ended) closed->worker.join();
    return closed->ended;
  });
  auto stream = std::make_shared<Stream>();
  stream->context = context;
  stream->worker = std::thread([this, stream] { RunStream(stream); });
  *handle = NewHandle<CUstream>();
  streams_[*handle] = std::move(stream);
  return CUDA_SUCCESS;
}

void Machine::CloseStream(const std::shared_ptr<Stream>& stream) {
  stream->closing = true;
  stream->capture = nullptr;
  contexts_.at(stream->context).closed.push_back(stream);
  changed_.notify_all();
}

CUresult Machine::StreamDestroy(CUstream handle) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<Stream> stream;
  if (const CUresult result = FindStream(handle, &stream); result != CUDA_SUCCESS) {
    return Misused("cuStreamDestroy of a stream that is not live, or without a context", result);
  }
  streams_.erase(handle);
  CloseStream(stream);
  return CUDA_SUCCESS;
}

CUresult Machine::StreamSynchronize(CUstream handle) {
  Lock lock(mutex_);
  std::shared_ptr<Stream> stream;
  if (const CUresult result = FindIdleStream(handle, "cuStreamSynchronize", &stream);
      result != CUDA_SUCCESS) {
    return result;
  }
  return WaitFor(lock, *stream);
}

CUresult Machine::StreamQuery(CUstream handle) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<Stream> stream;
  if (const CUresult result = FindIdleStream(handle, "cuStreamQuery", &stream);
      result != CUDA_SUCCESS) {
    return result;
  }
  return stream->completed == stream->enqueued ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult Machine::StreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<Stream> stream;
  if (const CUresult result = FindStream(handle, &stream); result != CUDA_SUCCESS) return result;
  if (stream->capture != nullptr) {
    stream->capture_invalid = true;
    return CUDA_ERROR_ILLEGAL_STATE;
  }
  if (mode == CU_STREAM_CAPTURE_MODE_GLOBAL) {
    NoteMisuse("a capture in global mode, which calls of other threads end");
  }
  stream->capture = std::make_shared<Graph>();
  stream->capture_thread = std::this_thread::get_id();
  stream->capture_any_thread = mode == CU_STREAM_CAPTURE_MODE_RELAXED;
  stream->capture_invalid = false;
  return CUDA_SUCCESS;
}

CUresult Machine::StreamEndCapture(CUstream handle, CUgraph* graph) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<Stream> stream;
  if (const CUresult result = FindStream(handle, &stream); result != CUDA_SUCCESS) return result;
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (!stream->capture_any_thread && stream->capture_thread != std::this_thread::get_id()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  *graph = nullptr;
  std::shared_ptr<Graph> captured = std::move(stream->capture);
  stream->capture = nullptr;
  if (stream->capture_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  *graph = NewHandle<CUgraph>();
  graphs_[*graph] = std::move(captured);
  return CUDA_SUCCESS;
}

void Machine::AbandonCapture(CUstream handle) {
  std::lock_guard lock(mutex_);
  if (const auto found = streams_.find(handle); found != streams_.end()) {
    found->second->capture = nullptr;
  }
}

CUresult Machine::EventCreate(CUevent* handle, unsigned int flags) {
  constexpr unsigned int kKnown = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
  if (handle == nullptr || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(mutex_);
  if (const CUresult result = RequireContext(); result != CUDA_SUCCESS) return result;
  *handle = NewHandle<CUevent>();
  events_[*handle] =
      std::make_shared<Event>(Event{.timed = (flags & CU_EVENT_DISABLE_TIMING) == 0});
  return CUDA_SUCCESS;
}

CUresult Machine::EventRecord(CUevent handle, CUstream stream_handle) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<Stream> stream;
  if (const CUresult result = FindIdleStream(stream_handle, "cuEventRecord", &stream);
      result != CUDA_SUCCESS) {
    return result;
  }
  const auto found = events_.find(handle);
  if (found == events_.end()) return CUDA_ERROR_INVALID_HANDLE;
  Work work;
  work.event = found->second;
  work.event_turn = ++found->second->recorded;
  Enqueue(*stream, std::move(work));
  return CUDA_SUCCESS;
}

CUresult Machine::EventSynchronize(CUevent handle) {
  Lock lock(mutex_);
  if (const CUresult result = RequireContext(); result != CUDA_SUCCESS) return result;
  const auto found = events_.find(handle);
  if (found == events_.end()) return CUDA_ERROR_INVALID_HANDLE;
  const std::shared_ptr<Event> event = found->second;
  const uint64_t target = event->recorded;
  changed_.wait(lock, [&] { return broken_ != CUDA_SUCCESS || event->completed >= target; });
  return broken_;
}

CUresult Machine::EventElapsedTime(float* milliseconds, CUevent from, CUevent to) {
  std::lock_guard lock(mutex_);
  if (const CUresult result = RequireContext(); result != CUDA_SUCCESS) return result;
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto first = events_.find(from), last = events_.find(to);
  for (const auto& event : {first, last}) {
    if (event == events_.end() || !event->second->timed || event->second->recorded == 0) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
    if (event->second->completed < event->second->recorded) return CUDA_ERROR_NOT_READY;
  }
  const int64_t elapsed = last->second->time_ns - first->second->time_ns;
  *milliseconds = static_cast<float>(elapsed) * 1e-6f;
  return CUDA_SUCCESS;
}

CUresult Machine::EventDestroy(CUevent handle) {
  std::lock_guard lock(mutex_);
  if (const CUresult result = RequireContext(); result != CUDA_SUCCESS) {
    return Misused("cuEventDestroy without a context", result);
  }
  if (events_.erase(handle) == 1) return CUDA_SUCCESS;
  return Misused("cuEventDestroy of an event that is not live", CUDA_ERROR_INVALID_HANDLE);
}

}  // namespace tetrad::cuda::simulated
