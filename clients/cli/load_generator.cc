// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/load_generator.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

namespace tetrad::cli {
namespace {

constexpr std::chrono::milliseconds kPauseAfterError{10};
constexpr std::chrono::milliseconds kProgressInterval{100};

class Load {
 public:
  Load(const LoadOptions& options, const std::stop_token& stop,
       const std::function<absl::Status(LoadSample&)>& call)
      : options_(options), stop_(stop), call_(call), began_(options.now()) {}

  LoadResult Run() {
    std::vector<std::jthread> threads;
    running_ = options_.in_flight;
    for (int i = 0; i < options_.in_flight; ++i) threads.emplace_back([this] { Work(); });
    {
      std::unique_lock lock(mutex_);
      while (!idle_.wait_for(lock, kProgressInterval, [this] { return running_ == 0; })) {
        if (!options_.progress) continue;
        lock.unlock();
        options_.progress(done_.load(std::memory_order_relaxed), options_.now() - began_);
        lock.lock();
      }
    }
    threads.clear();
    result_.stopped = stop_.stop_requested();
    result_.elapsed = ended_ - began_;
    return std::move(result_);
  }

 private:
  void Work() {
    LoadResult mine;
    absl::Time ended = began_;
    while (!stop_.stop_requested() && options_.now() - began_ < options_.duration &&
           begun_.fetch_add(1, std::memory_order_relaxed) < options_.calls) {
      LoadSample sample;
      const absl::Status status = call_(sample);
      if (!status.ok() && stop_.stop_requested()) break;
      ended = options_.now();
      done_.fetch_add(1, std::memory_order_relaxed);
      if (status.ok()) {
        mine.samples.push_back(sample);
        continue;
      }
      LoadErrors& errors = mine.errors[status.code()];
      if (errors.count++ == 0) errors.first = std::string(status.message());
      std::this_thread::sleep_for(kPauseAfterError);
    }
    const std::lock_guard lock(mutex_);
    result_.samples.insert(result_.samples.end(), mine.samples.begin(), mine.samples.end());
    MergeErrors(mine, result_);
    ended_ = std::max(ended_, ended);
    if (--running_ == 0) idle_.notify_all();
  }

  const LoadOptions& options_;
  const std::stop_token& stop_;
  const std::function<absl::Status(LoadSample&)>& call_;
  const absl::Time began_;
  std::atomic<int64_t> begun_{0}, done_{0};

  std::mutex mutex_;
  std::condition_variable idle_;
  int running_ = 0;            // guarded by mutex_
  LoadResult result_;          // guarded by mutex_
  absl::Time ended_ = began_;  // guarded by mutex_
};

}  // namespace

int64_t LoadResult::failed() const {
  int64_t failed = 0;
  for (const auto& [code, these] : errors) failed += these.count;
  return failed;
}

LoadResult GenerateLoad(const LoadOptions& options, const std::stop_token& stop,
                        const std::function<absl::Status(LoadSample&)>& call) {
  return Load(options, stop, call).Run();
}

void MergeErrors(const LoadResult& from, LoadResult& into) {
  for (const auto& [code, errors] : from.errors) {
    LoadErrors& all = into.errors[code];
    if (all.count == 0) all.first = errors.first;
    all.count += errors.count;
  }
}

}  // namespace tetrad::cli
