// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/io/record_sink.h"
#include "gnmr/io/torn_record.h"

namespace gnmr::io {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstRetry{20};
constexpr milliseconds kLongestRetry{1000};
constexpr milliseconds kGraceAfterGivingUp{500};
constexpr milliseconds kCloseInDestructor{2000};
constexpr std::size_t kRoomForNote = 256;

// Shared by the sink and its thread: where a write never returns, the thread outlives the sink.
struct Queue {
  std::mutex mutex;
  std::condition_variable work;      // for the thread
  std::condition_variable progress;  // for whoever waits in flush or close
  std::string queued;
  std::uint64_t queued_total = 0;   // bytes, ever
  std::uint64_t settled_total = 0;  // of these, written or given up
  std::uint64_t dropped = 0;        // records, ever
  std::uint64_t dropped_unreported = 0;
  std::uint64_t in_flight = 0;    // records that the thread has taken and not yet written
  bool stuck_is_counted = false;  // all that was left has been counted as lost already
  bool closing = false;
  bool give_up = false;
  bool finished = false;
  FileDescriptor file;
  BackgroundSettings settings;
};

class Drain {
 public:
  explicit Drain(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {
    // The two strings change places for ever, so neither grows in a step.
    chunk_.reserve(queue_->settings.queue_bytes + kRoomForNote);
  }

  void run() {
    std::unique_lock lock(queue_->mutex);
    for (;;) {
      queue_->work.wait(lock, [&] { return has_work() || queue_->closing; });
      if (!has_work() || queue_->give_up) break;
      take();
      if (chunk_.empty()) {  // no memory for the note alone
        queue_->work.wait_for(lock, kLongestRetry, [&] { return queue_->closing; });
        if (queue_->closing) break;
        continue;
      }
      lock.unlock();
      const bool written = write_all();
      lock.lock();
      if (!written) break;
      queue_->settled_total += chunk_records_;
      queue_->in_flight = 0;
      queue_->progress.notify_all();
    }
    // A stalled file system may hold these up; nobody else uses the file.
    lock.unlock();
    const std::uint64_t lost = end_file();
    lock.lock();
    if (!queue_->stuck_is_counted) queue_->dropped += lost + queue_->settings.shape.count(queue_->queued);
    queue_->queued.clear();
    queue_->finished = true;
    queue_->progress.notify_all();
  }

 private:
  bool has_work() const { return !queue_->queued.empty() || has_unreported_drops(); }
  bool has_unreported_drops() const { return queue_->dropped_unreported > 0 && queue_->settings.drop_note != nullptr; }

  // What was dropped came after all that is queued, so the note comes last.
  void take() {
    chunk_.clear();
    chunk_.swap(queue_->queued);
    chunk_records_ = chunk_.size();
    queue_->in_flight = queue_->settings.shape.count(chunk_);
    written_ = 0;
    if (!has_unreported_drops()) return;
    try {
      chunk_ += queue_->settings.drop_note(queue_->dropped_unreported);
      queue_->dropped_unreported = 0;
    } catch (const std::bad_alloc&) {
      // Reported at another time; this thread must not end the process.
    }
  }

  // Tries until everything is written or the sink gives up. What has begun is finished, so no line is torn by a retry.
  bool write_all() {
    milliseconds pause = kFirstRetry;
    while (written_ < chunk_.size()) {
      const ssize_t count = ::write(queue_->file.get(), chunk_.data() + written_, chunk_.size() - written_);
      if (count > 0) {
        written_ += static_cast<std::size_t>(count);
        pause = kFirstRetry;
        continue;
      }
      if (count < 0 && errno == EINTR) continue;
      std::unique_lock lock(queue_->mutex);
      if (queue_->work.wait_for(lock, pause, [&] { return queue_->give_up; })) return false;
      pause = std::min(2 * pause, kLongestRetry);
    }
    return true;
  }

  // Cuts off a record that was begun and closes; the records of the chunk that are lost. The note itself is no loss
  // beyond what it reports.
  std::uint64_t end_file() {
    const RecordShape& shape = queue_->settings.shape;
    std::uint64_t lost = 0;
    if (written_ < chunk_.size()) {
      const std::size_t kept = shape.whole(std::string_view(chunk_).substr(0, written_));
      cut_torn_record(queue_->file.get(), written_ - kept);
      const std::size_t first_lost = std::min(kept, chunk_records_);
      lost = shape.count(std::string_view(chunk_).substr(first_lost, chunk_records_ - first_lost));
    }
    queue_->file.close();
    return lost;
  }

  std::shared_ptr<Queue> queue_;
  std::string chunk_;              // being written: records, then perhaps a note
  std::size_t chunk_records_ = 0;  // bytes of it that are records
  std::size_t written_ = 0;
};

class BackgroundSink : public RecordSink {
 public:
  BackgroundSink(FileDescriptor file, const BackgroundSettings& settings) : queue_(std::make_shared<Queue>()) {
    queue_->file = std::move(file);
    queue_->settings = settings;
    queue_->queued.reserve(settings.queue_bytes + kRoomForNote);
    start_thread();
  }
  BackgroundSink(const BackgroundSink&) = delete;
  BackgroundSink& operator=(const BackgroundSink&) = delete;
  ~BackgroundSink() override {
    if (in_forked_child()) {
      if (thread_.joinable()) thread_.detach();
      return;
    }
    close(kCloseInDestructor);
  }

  void append(std::string_view records) override {
    if (in_forked_child()) return;
    {
      const std::lock_guard lock(queue_->mutex);
      if (queue_->closing || records.size() > queue_->settings.queue_bytes - queue_->queued.size()) {
        const std::uint64_t lost = queue_->settings.shape.count(records);
        queue_->dropped += lost;
        queue_->dropped_unreported += lost;
      } else {
        queue_->queued += records;
        queue_->queued_total += records.size();
      }
    }
    queue_->work.notify_one();
  }

  bool flush(milliseconds longest) override {
    if (in_forked_child()) return false;
    std::unique_lock lock(queue_->mutex);
    const std::uint64_t goal = queue_->queued_total;
    queue_->progress.wait_for(lock, longest, [&] { return queue_->settled_total >= goal || queue_->finished; });
    return queue_->settled_total >= goal;
  }

  bool close(milliseconds longest) override {
    if (in_forked_child() || !thread_.joinable()) return closed_whole_;
    std::unique_lock lock(queue_->mutex);
    queue_->closing = true;
    queue_->work.notify_all();
    const auto finished = [&] { return queue_->finished; };
    if (!queue_->progress.wait_for(lock, longest, finished)) {
      queue_->give_up = true;
      queue_->work.notify_all();
      queue_->progress.wait_for(lock, kGraceAfterGivingUp, finished);
    }
    closed_whole_ = queue_->settled_total == queue_->queued_total;
    const bool stuck = !queue_->finished;
    if (stuck) {
      queue_->dropped += queue_->in_flight + queue_->settings.shape.count(queue_->queued);
      queue_->stuck_is_counted = true;
    }
    lock.unlock();
    if (stuck) {
      thread_.detach();
    } else {
      thread_.join();
    }
    return closed_whole_;
  }

  std::uint64_t dropped() const override {
    if (in_forked_child()) return 0;
    const std::lock_guard lock(queue_->mutex);
    return queue_->dropped;
  }

 private:
  // A forked child has the sink but not its thread, and perhaps a mutex that nobody will open again.
  bool in_forked_child() const { return ::getpid() != owner_; }

  // The host's signals are for the host's threads, and a broken pipe must not end the process.
  class BlockedSignals {
   public:
    BlockedSignals() {
      sigset_t all;
      ::sigfillset(&all);
      ::pthread_sigmask(SIG_BLOCK, &all, &before_);
    }
    ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    BlockedSignals(const BlockedSignals&) = delete;
    BlockedSignals& operator=(const BlockedSignals&) = delete;

   private:
    sigset_t before_;
  };

  void start_thread() {
    const BlockedSignals blocked;
    try {
      thread_ = std::thread([drain = Drain(queue_)]() mutable { drain.run(); });
    } catch (const std::system_error& error) {
      throw Error(std::string("cannot start a thread for the journal: ") + error.what());
    }
  }

  std::shared_ptr<Queue> queue_;
  std::thread thread_;
  const pid_t owner_ = ::getpid();
  bool closed_whole_ = false;
};

}  // namespace

std::unique_ptr<RecordSink> make_background_sink(FileDescriptor file, const BackgroundSettings& settings) {
  return std::make_unique<BackgroundSink>(std::move(file), settings);
}

}  // namespace gnmr::io
