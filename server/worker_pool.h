// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// WorkerPool: a fixed number of threads behind a bounded queue.
//
// For work that must not run on a thread of the RPC library: whatever copies
// much, reads files or waits. The bound is the back-pressure: Post() refuses
// instead of queueing without end. One of the threads that have nothing to do may
// spin for a while, and takes the next job without being woken.
//
// Thread-safe. The destructor runs what is queued, then joins. A job that
// throws ends the process, like any thread of its own would.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"

namespace tetrad {

class WorkerPool {
 public:
  // `name` (at most 15 characters) is that of the threads.
  WorkerPool(const std::string& name, int threads, size_t capacity,
             std::chrono::nanoseconds spin = {});
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False, and the job is not taken, if `capacity` jobs wait already.
  [[nodiscard]] bool Post(absl::AnyInvocable<void()>&& job);

  // The same if a thread spins with nothing to do; else false, at once.
  [[nodiscard]] bool PostToSpinning(absl::AnyInvocable<void()>&& job);

  size_t capacity() const { return capacity_; }

 private:
  void Work();
  // Needs the lock; gives it up meanwhile.
  void Spin(std::unique_lock<std::mutex>& lock);

  const size_t capacity_;
  const std::chrono::nanoseconds spin_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<absl::AnyInvocable<void()>> jobs_;  // guarded by mutex_
  bool spinning_ = false;                        // a thread is; guarded by mutex_
  bool stopping_ = false;                        // guarded by mutex_
  std::atomic<bool> called_{false};              // the one that spins
  std::vector<std::thread> threads_;
};

}  // namespace tetrad
