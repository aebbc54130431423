// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/cell_runner.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "gnmr/core/error.h"
#include "gnmr/lab/child_process.h"
#include "gnmr/lab/setting_texts.h"
#include "gnmr/run/run_folder.h"

namespace gnmr::lab {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// The last line that a child printed, which is where an error is.
std::string last_line(const std::string& path) {
  std::ifstream file(path);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = std::move(line);
  }
  return last;
}

bool has_checkpoint(const run::RunFolder& folder) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.checkpoints(), ignored)) {
    if (entry.path().filename().string().starts_with("step-")) return true;
  }
  return false;
}

/// A cell that runs.
struct Running {
  std::size_t cell = 0;
  ChildProcess child;
  ProgressFollower progress;
  std::string note;
  Clock::time_point last_news;
  bool stalled = false;
};

class Runner {
 public:
  Runner(const Suite& suite, const RunnerSettings& settings, SuiteObserver& observer)
      : suite_(suite), settings_(settings), observer_(observer) {
    outcome_.cells.resize(suite.cells().size());
  }

  SuiteOutcome run() {
    find_finished();
    while (true) {
      if (!outcome_.stopped) start_cells();
      look_at_children();
      observer_.looked(outcome_.cells);
      if (running_.empty() && (outcome_.stopped || !can_start_another())) break;
      follow_stops();
      std::this_thread::sleep_for(settings_.look_every);
    }
    return std::move(outcome_);
  }

 private:
  void find_finished() {
    for (std::size_t cell = 0; cell < outcome_.cells.size(); ++cell) {
      CellStatus& status = outcome_.cells[cell];
      status.result = suite_.finished(suite_.cells()[cell]);
      if (!status.result) continue;
      status.state = CellState::finished;
      status.found = true;
      ProgressFollower progress(run::RunFolder(suite_.run_folder(suite_.cells()[cell])).metrics());
      progress.update();
      status.points = progress.points();
    }
  }

  /// Whether the cell that this one needs has come to an end.
  bool is_ready(std::size_t cell) const {
    const std::optional<std::size_t> needs = suite_.cells()[cell].needs;
    if (outcome_.cells[cell].state != CellState::waiting) return false;
    return !needs || outcome_.cells[*needs].state == CellState::finished ||
           outcome_.cells[*needs].state == CellState::failed;
  }

  bool can_start_another() const {
    for (std::size_t cell = 0; cell < outcome_.cells.size(); ++cell) {
      if (is_ready(cell)) return true;
    }
    return false;
  }

  void start_cells() {
    for (std::size_t cell = 0; cell < outcome_.cells.size() && running_.size() < settings_.jobs; ++cell) {
      if (!is_ready(cell)) continue;
      try {
        start(cell);
      } catch (const Error& error) {
        fail(cell, error.what());
      }
    }
  }

  void start(std::size_t cell) {
    const PlannedCell& planned = suite_.cells()[cell];
    const CellResult* needed = nullptr;
    if (planned.needs) {
      const CellStatus& other = outcome_.cells[*planned.needs];
      if (!other.result) throw Error(suite_.cells()[*planned.needs].name + ", which it needs, failed");
      needed = &*other.result;
    }
    std::string note;
    run::TrainSettings settings = suite_.settings_of(planned, needed, note);
    // A run may have ended in the moment in which the suite was stopped.
    if (std::optional<CellResult> result = suite_.measure(planned, note)) {
      finish(cell, std::move(*result));
      return;
    }
    const run::RunFolder folder(settings.out);
    const bool continues = has_checkpoint(folder);
    settings.resume = true;  // where there is nothing to continue the run starts
    std::vector<std::string> arguments = settings_.program;
    for (std::string& flag : train_arguments(settings)) arguments.push_back(std::move(flag));
    running_.push_back({.cell = cell,
                        .child = ChildProcess(arguments, suite_.log_path(planned)),
                        .progress = ProgressFollower(folder.metrics()),
                        .note = std::move(note),
                        .last_news = Clock::now()});
    outcome_.cells[cell].state = CellState::running;
    observer_.started(cell, continues);
  }

  void finish(std::size_t cell, CellResult result) {
    outcome_.cells[cell].state = CellState::finished;
    outcome_.cells[cell].result = std::move(result);
    observer_.ended(cell, outcome_.cells[cell]);
  }

  void fail(std::size_t cell, const std::string& why) {
    outcome_.cells[cell].state = CellState::failed;
    outcome_.cells[cell].why = why;
    observer_.ended(cell, outcome_.cells[cell]);
  }

  void look_at_children() {
    const Clock::time_point now = Clock::now();
    for (Running& running : running_) {
      if (running.progress.update()) {
        running.last_news = now;
        outcome_.cells[running.cell].points = running.progress.points();
      }
      const bool gives_up = settings_.stall_time.count() > 0 && now - running.last_news > settings_.stall_time;
      if (gives_up && !running.stalled) {
        running.stalled = true;
        running.child.kill();
      }
    }
    for (std::size_t i = 0; i < running_.size();) {
      const std::optional<ChildEnd> end = running_[i].child.poll();
      if (!end) {
        ++i;
        continue;
      }
      running_[i].progress.update();
      outcome_.cells[running_[i].cell].points = running_[i].progress.points();
      judge(running_[i], *end);
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  /// What the end of a child means for its cell.
  void judge(const Running& running, const ChildEnd& end) {
    const PlannedCell& planned = suite_.cells()[running.cell];
    if (running.stalled) {
      fail(running.cell, "no step in " + std::to_string(settings_.stall_time.count()) + " s: it was killed");
      return;
    }
    try {
      // A run that is complete counts, whatever happened to its process afterwards.
      if (std::optional<CellResult> result = suite_.measure(planned, running.note)) {
        finish(running.cell, std::move(*result));
        return;
      }
    } catch (const Error& error) {
      fail(running.cell, error.what());
      return;
    }
    if (outcome_.stopped) {
      outcome_.cells[running.cell].state = CellState::waiting;  // it goes on another time
      return;
    }
    const std::string printed = last_line(suite_.log_path(planned));
    fail(running.cell, end.text() + (printed.empty() ? "" : ": " + printed));
  }

  void follow_stops() {
    const int wanted = observer_.stops_wanted();
    const Clock::time_point now = Clock::now();
    if (wanted > 0 && !outcome_.stopped) {
      outcome_.stopped = true;
      stop_asked_ = now;
      for (const Running& running : running_) running.child.interrupt();
    }
    if (outcome_.stopped && (wanted > 1 || now - stop_asked_ > settings_.stop_time)) {
      for (const Running& running : running_) running.child.kill();
    }
  }

  const Suite& suite_;
  const RunnerSettings& settings_;
  SuiteObserver& observer_;
  SuiteOutcome outcome_;
  std::vector<Running> running_;
  Clock::time_point stop_asked_;
};

}  // namespace

std::size_t SuiteOutcome::count(CellState state) const {
  return static_cast<std::size_t>(
      std::count_if(cells.begin(), cells.end(), [&](const CellStatus& cell) { return cell.state == state; }));
}

SuiteOutcome run_cells(const Suite& suite, const RunnerSettings& settings, SuiteObserver& observer) {
  return Runner(suite, settings, observer).run();
}

}  // namespace gnmr::lab
