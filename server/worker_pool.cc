// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/worker_pool.h"

#include <utility>

#include <pthread.h>

#include "engine/support/spin.h"

namespace tetrad {

WorkerPool::WorkerPool(const std::string& name, int threads, size_t capacity,
                       std::chrono::nanoseconds spin)
    : capacity_(capacity), spin_(spin) {
  threads_.reserve(static_cast<size_t>(threads));
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { Work(); });
    ::pthread_setname_np(threads_.back().native_handle(), name.c_str());
  }
}

WorkerPool::~WorkerPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    called_.store(true, std::memory_order_relaxed);
  }
  ready_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool WorkerPool::Post(absl::AnyInvocable<void()>&& job) {
  {
    std::lock_guard lock(mutex_);
    if (jobs_.size() >= capacity_) return false;
    jobs_.push_back(std::move(job));
    // The thread that spins takes one; for others that wait, others are woken.
    if (spinning_ && jobs_.size() == 1) {
      called_.store(true, std::memory_order_relaxed);
      return true;
    }
  }
  ready_.notify_one();
  return true;
}

bool WorkerPool::PostToSpinning(absl::AnyInvocable<void()>&& job) {
  std::lock_guard lock(mutex_);
  if (!spinning_ || !jobs_.empty() || jobs_.size() >= capacity_) return false;
  jobs_.push_back(std::move(job));
  called_.store(true, std::memory_order_relaxed);
  return true;
}

void WorkerPool::Spin(std::unique_lock<std::mutex>& lock) {
  spinning_ = true;
  called_.store(false, std::memory_order_relaxed);
  lock.unlock();
  SpinUntil([this] { return called_.load(std::memory_order_relaxed); },
            std::chrono::steady_clock::now() + spin_);
  lock.lock();
  spinning_ = false;
}

void WorkerPool::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (jobs_.empty() && !stopping_ && !spinning_ && spin_ > spin_.zero()) Spin(lock);
    ready_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    absl::AnyInvocable<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    job = nullptr;  // what it holds is released outside the lock
    lock.lock();
  }
}

}  // namespace tetrad
