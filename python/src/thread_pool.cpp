// SPDX-License-Identifier: Apache-2.0
#include "thread_pool.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace gnmr::python {
namespace {

/// Some threads and the one job that they have.
class Pool {
 public:
  Pool() : process_(::getpid()) {}

  bool is_of_this_process() const { return process_ == ::getpid(); }

  /// Runs the job on `threads` threads; false, with nothing done, where another caller's job is running.
  bool run(std::size_t threads, std::size_t count, const WorkPart& part) {
    const std::unique_lock only_one(callers_, std::try_to_lock);
    if (!only_one) return false;
    {
      const std::lock_guard lock(mutex_);
      while (started_ + 1 < threads) start_worker();
      part_ = &part;
      count_ = count;
      // Smaller shares than threads: one that was woken late takes fewer.
      share_ = std::max<std::size_t>(count / (threads * 4), 1);
      next_ = 0;
      wanted_ = threads - 1;
      running_ = wanted_;
      ++job_;
    }
    wake_.notify_all();
    work();
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return running_ == 0; });
    return true;
  }

 private:
  void start_worker() {
    const std::size_t number = started_++;
    std::thread([this, number, seen = job_]() mutable { serve(number, seen); }).detach();
  }

  void serve(std::size_t number, std::size_t seen) {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return job_ != seen; });
        seen = job_;
        if (number >= wanted_) continue;
      }
      work();
      const std::lock_guard lock(mutex_);
      if (--running_ == 0) done_.notify_one();
    }
  }

  void work() {
    for (std::size_t first = next_.fetch_add(share_); first < count_; first = next_.fetch_add(share_)) {
      (*part_)(first, std::min(first + share_, count_));
    }
  }

  const pid_t process_;
  std::mutex callers_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::size_t started_ = 0, wanted_ = 0, running_ = 0, job_ = 0;
  const WorkPart* part_ = nullptr;
  std::size_t count_ = 0, share_ = 1;
  std::atomic<std::size_t> next_{0};
};

/// Never destroyed: its threads may be waiting when the process ends. A forked child has the memory, but no threads.
Pool& pool() {
  static std::mutex mutex;
  static Pool* current = nullptr;
  const std::lock_guard lock(mutex);
  if (current == nullptr || !current->is_of_this_process()) current = new Pool;
  return *current;
}

}  // namespace

ParallelFor on_threads(std::size_t threads, std::size_t pieces_per_thread) {
  return [threads, pieces_per_thread](std::size_t count, const WorkPart& part) {
    const std::size_t useful = std::min(threads, count / std::max<std::size_t>(pieces_per_thread, 1));
    if (useful < 2 || !pool().run(useful, count, part)) part(0, count);
  };
}

}  // namespace gnmr::python
