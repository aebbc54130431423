// SPDX-License-Identifier: Apache-2.0
#include "abuse/kills.h"

#include <fmt/format.h>
#include <signal.h>

#include <atomic>
#include <deque>
#include <filesystem>
#include <mutex>
#include <thread>

#include "abuse/command.h"
#include "abuse/kill_plan.h"
#include "abuse/same_run.h"
#include "apps/train/train_program.h"
#include "gnmr/core/error.h"

namespace gnmr::abuse {
namespace {

namespace fs = std::filesystem;
using std::chrono::microseconds;
using std::chrono::steady_clock;

constexpr int kStoppedStatus = 5;  // by a signal, with a checkpoint; --resume continues
constexpr int kInputErrorStatus = 3;

constexpr const char* kInt4Delayed = R"({"name": "int4-delayed", "about": "INT4 whose scales come from earlier steps.",
  "input": {"format": "int4", "scaling": "delayed", "history": 4},
  "weight": {"format": "int4", "scaling": "delayed", "history": 4},
  "output_gradient": {"format": "e5m2", "scaling": "delayed", "history": 4}})";

/// A run that was left alone.
struct Reference {
  std::once_flag once;
  RunPlan plan;
  std::string folder;          // of the run
  std::int64_t last_step = 0;  // with lag 1 more than were asked for: held batches come again
  double seconds = 0;
  std::string failure;  // empty: it is there
};

/// Processes whose environment has this marker, with their rank (-1: they have none).
std::vector<std::pair<pid_t, int>> processes_with(const std::string& marker) {
  std::vector<std::pair<pid_t, int>> found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string environment = test::content_of(entry.path().string() + "/environ");
    if (environment.find(marker) == std::string::npos) continue;
    constexpr std::string_view kRank("\0RANK=", 6);
    const std::size_t rank = environment.find(kRank);
    found.emplace_back(static_cast<pid_t>(std::stol(name)),
                       rank == std::string::npos ? -1 : std::atoi(environment.c_str() + rank + kRank.size()));
  }
  return found;
}

/// One start of the command, and the signal that it gets.
class Attempt {
 public:
  Attempt(const Settings& settings, const RunPlan& plan, const std::string& folder, const std::string& marker)
      : plan_(plan),
        run_(folder + "/run"),
        marker_("GNMR_ABUSE_CASE=" + marker),
        command_(folder, words(settings, plan), {}, variables(settings)) {}
  ~Attempt() { sweep(); }

  static Words words(const Settings& settings, const RunPlan& plan) {
    Words all{settings.program};
    if (plan.processes > 1) {
      all = {settings.python, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "gnmr"};
    }
    all.emplace_back("train");
    all.insert(all.end(), plan.flags.begin(), plan.flags.end());
    all.insert(all.end(), {"--out", "run", "--resume"});
    return all;
  }

  /// Waits for the moment; false where the program ended before it.
  bool wait_for(const Stop& stop, const Reference& whole) {
    const std::size_t lines = testing::lines_in(run_ + "/metrics.jsonl");
    const char* const prefix = stop.moment == Moment::writing ? ".unfinished-" : "step-";
    std::string last = newest_name(prefix);  // what is there already is no news
    std::size_t seen = 0;
    const auto began = steady_clock::now();
    const auto has_come = [&] {
      switch (stop.moment) {
        case Moment::start:
        case Moment::any:
          return true;
        case Moment::line:
          return testing::lines_in(run_ + "/metrics.jsonl") >= lines + stop.count;
        case Moment::last_step:
          return is_line_written(whole.last_step);
        default:
          break;
      }
      const std::string name = newest_name(prefix);
      if (!name.empty() && name != last) {
        ++seen;
        last = name;
      }
      return seen >= stop.count;
    };
    while (!has_come()) {
      if (!command_.running()) return false;
      std::this_thread::sleep_for(microseconds(150));
    }
    const double open_ms = stop.moment == Moment::start       ? 300 * whole_share()
                           : stop.moment == Moment::any       ? 1000 * whole.seconds
                           : stop.moment == Moment::line      ? 10
                           : stop.moment == Moment::last_step ? 40
                                                              : 4;
    const auto moment = (stop.moment == Moment::any ? began : steady_clock::now()) +
                        microseconds(static_cast<std::int64_t>(1000 * open_ms * stop.share));
    while (steady_clock::now() < moment) {
      if (!command_.running()) return false;
      std::this_thread::sleep_for(microseconds(100));
    }
    return command_.running();
  }

  void send(const Stop& stop) {
    if (plan_.processes == 1) {
      command_.send(stop.signal);
      return;
    }
    bool sent = false;
    for (const auto& [process, rank] : processes_with(marker_)) {
      const bool meant = stop.rank >= 0 ? rank == stop.rank : stop.signal == SIGKILL;
      if (meant) sent = ::kill(process, stop.signal) == 0 || sent;
    }
    if (!sent) command_.send(stop.signal);
  }

  lab::ChildEnd wait() {
    const lab::ChildEnd end = command_.wait();
    sweep();
    return end;
  }

  bool timed_out() const { return command_.timed_out(); }
  std::string err() const { return command_.err(); }
  double seconds() const { return command_.seconds(); }

 private:
  /// Two processes take seconds to start.
  double whole_share() const { return plan_.processes > 1 ? 15 : 1; }

  Words variables(const Settings& settings) const {
    Words all{marker_, "OMP_WAIT_POLICY=PASSIVE", "OMP_NUM_THREADS=1"};
    if (plan_.processes > 1) all.push_back("PYTHONPATH=" + settings.package);
    return all;
  }

  std::string newest_name(const std::string& prefix) const {
    std::string newest;
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(run_ + "/checkpoints", ignored)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(prefix) && name > newest) newest = name;
    }
    return newest;
  }

  bool is_line_written(std::int64_t step) const {
    return test::content_of(run_ + "/metrics.jsonl").find(fmt::format("{{\"kind\":\"train\",\"step\":{},", step)) !=
           std::string::npos;
  }

  /// What a launcher that was killed has left behind.
  void sweep() const {
    if (plan_.processes == 1) return;
    for (const auto& [process, rank] : processes_with(marker_)) ::kill(process, SIGKILL);
  }

  RunPlan plan_;
  std::string run_;
  std::string marker_;
  RunningCommand command_;
};

/// A run that is stopped and resumed.
class KillCase {
 public:
  KillCase(const Settings& settings, const Reference& reference, const std::string& folder, std::string name)
      : settings_(settings),
        reference_(reference),
        plan_(reference.plan),
        folder_(folder),
        run_(folder + "/run"),
        name_(std::move(name)) {
    fs::create_directories(folder_);
  }

  /// What is wrong, in words; empty: nothing. `delivered` counts signals that met a running program.
  std::string run(const KillPlan& kills, std::vector<Stop>& delivered) {
    for (const Stop& stop : kills.stops) {
      bool done = false;
      const std::string problem = stop_once(stop, delivered, done);
      if (!problem.empty()) return problem;
      if (done) break;
    }
    for (int again = 0; again < 2; ++again) {  // the second time there is nothing left to do
      Attempt attempt(settings_, plan_, folder_, name_);
      const lab::ChildEnd end = attempt.wait();
      err_ = attempt.err();
      if (!end.good()) {
        return fmt::format("{} with --resume: {}", again == 0 ? "the run" : "the finished run", end.text());
      }
      const std::string difference = run_difference(reference_.folder, run_);
      if (!difference.empty()) return fmt::format("{}{}", again == 0 ? "" : "resumed when done: ", difference);
    }
    return look(true);
  }

  const std::string& err() const { return err_; }

 private:
  std::string stop_once(const Stop& stop, std::vector<Stop>& delivered, bool& done) {
    const std::size_t lines = testing::lines_in(run_ + "/metrics.jsonl");
    Attempt attempt(settings_, plan_, folder_, name_);
    const bool met = attempt.wait_for(stop, reference_);
    const bool finishing = newest_checkpoint(run_) == reference_.last_step;
    if (met) attempt.send(stop);
    const lab::ChildEnd end = attempt.wait();
    err_ = attempt.err();
    if (met) delivered.push_back(stop);
    if (attempt.timed_out()) return "it did not end in time";
    done = end.good();
    if (done) return {};
    const std::string when = fmt::format("signal {} {}", stop.signal, text_of(stop.moment));
    if (!met) return "it ended by itself: " + end.text();
    if (plan_.processes == 1) {
      const bool trained = testing::lines_in(run_ + "/metrics.jsonl") > lines;
      const bool stopped = end.signal == stop.signal && (stop.signal == SIGKILL || !trained || finishing);
      if (!stopped && !(stop.signal != SIGKILL && end.status == kStoppedStatus && end.signal == 0)) {
        return when + ": " + end.text();
      }
    }
    // A launcher has a status of its own; of a signal to all of its processes a checkpoint is promised too.
    if (end.status == kStoppedStatus && end.signal == 0) {
      const std::string problem = check_saved();
      if (!problem.empty()) return when + ": " + problem;
    }
    const std::string problem = look(false);
    return problem.empty() ? problem : when + ": " + problem;
  }

  /// Stopped with a checkpoint: of the last step that the files have.
  std::string check_saved() const {
    std::error_code ignored;
    const bool has_lines = fs::exists(run_ + "/metrics.jsonl", ignored);
    const run::Metrics metrics = has_lines ? testing::metrics_of(run_) : run::Metrics{};
    const std::int64_t last = metrics.train.empty() ? 0 : metrics.train.back().step;
    const std::int64_t saved = newest_checkpoint(run_);
    return last == saved ? std::string()
                         : fmt::format("status 5 after step {}, but the newest checkpoint is of step {}", last, saved);
  }

  /// Whether `gnmr report` and `gnmr explain` read the folder; of a run that has hardly begun there may be nothing yet.
  std::string look(bool finished) {
    std::error_code ignored;
    const bool begun = fs::exists(run_ + "/run.json", ignored) || fs::exists(run_ + "/journal.jsonl", ignored);
    const bool told = fs::exists(run_ + "/journal.jsonl", ignored);
    for (const auto& [words, due] : {std::pair<Words, bool>{{"report", "-q", "--out", "page.html", "run"}, begun},
                                     std::pair<Words, bool>{{"explain", "run"}, told}}) {
      Words all{settings_.program};
      all.insert(all.end(), words.begin(), words.end());
      RunningCommand command(folder_, all, {.memory_mib = 1024});
      const lab::ChildEnd end = command.wait();
      const bool nothing_there = !finished && !due && end.signal == 0 && end.status == kInputErrorStatus;
      if (end.good() || nothing_there) continue;
      err_ = command.err();
      return fmt::format("gnmr {}: {}", words.front(), end.text());
    }
    return {};
  }

  const Settings& settings_;
  const Reference& reference_;
  const RunPlan& plan_;
  std::string folder_;
  std::string run_;
  std::string name_;
  std::string err_;
};

/// All cases, and the runs that they are compared with.
class KillCampaign {
 public:
  KillCampaign(const Settings& settings, Tally& tally) : settings_(settings), tally_(tally), references_(kRunPlans) {
    test::put_file(sample_.file("int4-delayed.json"), kInt4Delayed);
    // Weights for runs that start from those of another run.
    const Words words{settings_.program, "train", "--model",    "config.json", "--data",         "text.txt",
                      "--steps",         "1",     "--sequence", "16",          "--batch",        "2",
                      "--threads",       "1",     "--out",      "first",       "--eval-batches", "1"};
    RunningCommand command(sample_.file("."), words, {});
    const lab::ChildEnd end = command.wait();
    if (!end.good()) throw Error(shell_line(words) + ": " + end.text() + ": " + command.err());
    copy_tree(checkpoint_folder(sample_.file("first"), 1), sample_.file("weights"));
  }

  /// One case; the number of signals that were delivered.
  std::size_t run(std::size_t number) {
    const KillPlan kills = make_kill_plan(settings_.seed, number);
    const bool two_processes = has_two_processes(kills.run) && !settings_.python.empty();
    Reference& reference = references_[kills.run];
    std::call_once(reference.once, [&] { make_reference(reference, kills.run, two_processes); });
    const std::string folder = scratch_.file(fmt::format("kill-{}", number));
    CaseResult result{.name = fmt::format("kill:{}", number), .row = "kill, " + reference.plan.name};
    result.command = shell_line(Attempt::words(settings_, reference.plan));
    std::vector<Stop> delivered;
    const auto began = steady_clock::now();
    if (!reference.failure.empty()) {
      result.failure = "the run that is left alone: " + reference.failure;
    } else {
      KillCase one(settings_, reference, folder, result.name);
      result.failure = one.run(kills, delivered);
      if (!result.failure.empty()) result.output = one.err();
    }
    result.outcome = result.failure.empty() ? "same" : "not same";
    result.seconds = std::chrono::duration<double>(steady_clock::now() - began).count();
    tally_.add(result);
    for (const Stop& stop : delivered) count(stop);
    if (!result.failure.empty() && !settings_.keep.empty()) copy_tree(folder, settings_.keep + "/" + result.name);
    test::remove_tree(folder);
    return delivered.size();
  }

 private:
  void make_reference(Reference& reference, std::uint64_t number, bool two_processes) {
    reference.plan = make_run_plan(settings_.seed, number, sample_.file("."), two_processes);
    const std::string folder = scratch_.file(fmt::format("whole-{}", number));
    fs::create_directories(folder);
    reference.folder = folder + "/run";
    Attempt attempt(settings_, reference.plan, folder, fmt::format("whole:{}", number));
    const lab::ChildEnd end = attempt.wait();
    reference.seconds = attempt.seconds();
    reference.last_step = newest_checkpoint(reference.folder);
    if (!end.good()) reference.failure = end.text() + ": " + attempt.err();
  }

  void count(const Stop& stop) {
    const char* const name = ::sigabbrev_np(stop.signal);
    tally_.add({.name = "",
                .row = std::string("signal ") + text_of(stop.moment),
                .outcome = std::string("SIG") + (name != nullptr ? name : "?")});
  }

  const Settings& settings_;
  Tally& tally_;
  testing::TrainFolder sample_;
  test::TemporaryFolder scratch_;
  std::deque<Reference> references_;
};

}  // namespace

void run_kills(const Settings& settings, Tally& tally) {
  KillCampaign campaign(settings, tally);
  if (!settings.only.empty()) {
    campaign.run(wanted_number(settings));
    return;
  }
  std::atomic<std::size_t> delivered{0};
  in_parallel(settings.jobs, [&](std::size_t number) {
    if (delivered >= settings.kills || number >= 10 * settings.kills) return false;
    delivered += campaign.run(number);
    tally.progress("kills", delivered, settings.kills);
    return true;
  });
}

}  // namespace gnmr::abuse
