// SPDX-License-Identifier: Apache-2.0
#include "gnmr/replay.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gnmr/core/controller.h"
#include "gnmr/exit_codes.h"
#include "gnmr/io/byte_source.h"
#include "gnmr/io/decisions.h"
#include "gnmr/io/journal_writer.h"
#include "gnmr/io/signals_file.h"
#include "gnmr/io/state_file.h"
#include "gnmr/io/truth.h"
#include "gnmr/io/units_json.h"
#include "gnmr/lab/detection_score.h"
#include "gnmr/live_view.h"
#include "gnmr/messages.h"
#include "gnmr/replay_summary.h"

namespace gnmr::app {
namespace {

/// Bytes that tell the progress line how far they are: also while a log is read ahead, before its first row.
class WatchedSource : public io::ByteSource {
 public:
  WatchedSource(std::unique_ptr<io::ByteSource> inner, ProgressLine& progress)
      : ByteSource(inner->name()), inner_(std::move(inner)), progress_(progress) {}

  std::size_t read(std::span<char> into) override {
    const std::size_t count = inner_->read(into);
    progress_.update(inner_->bytes_read(), inner_->bytes_total());
    return count;
  }
  bool can_rewind() const override { return inner_->can_rewind(); }
  void rewind() override { inner_->rewind(); }
  std::uint64_t bytes_read() const override { return inner_->bytes_read(); }
  std::uint64_t bytes_total() const override { return inner_->bytes_total(); }

 private:
  std::unique_ptr<io::ByteSource> inner_;
  ProgressLine& progress_;
};

std::unique_ptr<io::TraceReader> open_watched(const ReplayRequest& request, ProgressLine& progress) {
  std::error_code ignored;
  // A directory is many files; it is small, as event files go.
  if (std::filesystem::is_directory(request.trace_path, ignored))
    return io::open_trace(request.trace_path, request.trace);
  return io::open_trace(std::make_unique<WatchedSource>(io::open_byte_source(request.trace_path), progress),
                        request.trace);
}

/// Ground truth beside the trace: its columns brought into the order of the trace's units.
class Truth {
 public:
  Truth(const std::string& path, const Controller& controller)
      : reader_(io::open_truth(path)),
        score_(controller.units().size(), in_recovery(controller)),
        faulty_(controller.units().size(), 0) {
    const std::vector<Unit>& units = controller.units();
    std::unordered_map<std::string, std::size_t> column_of;
    for (std::size_t column = 0; column < reader_.units().size(); ++column) column_of[reader_.units()[column]] = column;
    for (const Unit& unit : units) {
      const auto found = column_of.find(unit.name);
      if (found == column_of.end()) throw Error(path + ": expected a column for unit `" + unit.name + "`");
      columns_.push_back(found->second);
      column_of.erase(found);
    }
    if (!column_of.empty()) throw Error(path + ": unit `" + column_of.begin()->first + "` is not in the trace");
    more_ = reader_.next(row_);
  }

  /// A step that the truth does not have counts as free of faults.
  void add(const Decision& decision) {
    while (more_ && row_.step < decision.step) {
      ++unmatched_;
      more_ = reader_.next(row_);
    }
    const bool known = more_ && row_.step == decision.step;
    unknown_ += known ? 0 : 1;
    for (std::size_t unit = 0; unit < columns_.size(); ++unit) {
      faulty_[unit] = known ? row_.faulty[columns_[unit]] : std::uint8_t{0};
    }
    if (known) more_ = reader_.next(row_);
    score_.add(faulty_, decision);
  }

  /// Reads what the truth has beyond the trace, so that it is checked and counted too.
  void finish() {
    for (; more_; more_ = reader_.next(row_)) ++unmatched_;
  }

  std::vector<std::string> notes() const {
    std::vector<std::string> notes;
    if (unmatched_ > 0) notes.push_back(fmt::format("{} steps of the truth are not in the trace", unmatched_));
    if (unknown_ > 0)
      notes.push_back(fmt::format("{} steps of the trace are not in the truth: free of faults", unknown_));
    return notes;
  }

  const lab::DetectionScore& score() const { return score_; }

 private:
  static std::vector<UnitIndex> in_recovery(const Controller& controller) {
    std::vector<UnitIndex> units;
    for (UnitIndex unit = 0; unit < controller.units().size(); ++unit) {
      if (controller.steps_left(unit) > 0) units.push_back(unit);
    }
    return units;
  }

  io::TruthReader reader_;
  lab::DetectionScore score_;
  std::vector<std::size_t> columns_;
  std::vector<std::uint8_t> faulty_;
  io::TruthRow row_;
  bool more_ = false;
  std::uint64_t unmatched_ = 0;
  std::uint64_t unknown_ = 0;
};

/// The files that a replay writes.
class Outputs {
 public:
  Outputs(const ReplayRequest& request, const Controller& controller)
      : signals_every_(static_cast<std::uint64_t>(request.signals_every)) {
    if (!request.decisions_path.empty()) decisions_.emplace(request.decisions_path, controller.units());
    if (!request.journal_path.empty()) {
      journal_.emplace(io::JournalSettings{
          .path = request.journal_path, .existing = io::ExistingFile::replace, .in_background = false});
      journal_->header(controller.units(), controller.options(), io::utc_text(std::chrono::system_clock::now()));
    }
    if (!request.signals_path.empty()) {
      signals_.emplace(io::SignalsSettings{.path = request.signals_path,
                                           .unit_count = controller.units().size(),
                                           .existing = io::ExistingFile::replace,
                                           .in_background = false});
    }
  }

  void write(const Controller& controller, const Alarm& alarm, const Decision& decision) {
    if (decisions_) decisions_->write(decision);
    if (journal_) journal_->step(controller, alarm, decision);
    if (signals_ && row_++ % signals_every_ == 0) signals_->write(decision.step, controller);
  }

  void close() {
    if (decisions_) decisions_->close();
    if (journal_) journal_->close();
    if (signals_) signals_->close();
  }

 private:
  std::optional<io::DecisionWriter> decisions_;
  std::optional<io::JournalWriter> journal_;
  std::optional<io::SignalsWriter> signals_;
  std::uint64_t signals_every_;
  std::uint64_t row_ = 0;
};

void load_state(const std::string& path, Controller& controller, bool quiet) {
  const RestoreReport report = controller.restore(io::load_state(path).state);
  if (quiet || report.exact()) return;
  if (report.beta_changed) say("state: beta has changed: means start afresh");
  if (report.noise_beta_changed) say("state: noise_beta has changed: usual changes start afresh");
  if (report.window_changed) say("state: window has changed: kept ratios were cut or filled up");
  const auto list = [](const char* what, const std::vector<std::string>& names) {
    if (names.empty()) return;
    say(fmt::format("state: {} {} (first: {})", names.size(), what, printable(names.front())));
  };
  list("units are new and start afresh", report.new_units);
  list("units are not in this trace and were dropped", report.unknown_units);
  list("units no longer fit the budget and were released", report.released_units);
}

/// Whether both paths are one file; `-` is none.
bool is_same_file(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty() || a == "-" || b == "-") return false;
  std::error_code ignored;
  if (std::filesystem::equivalent(a, b, ignored)) return std::filesystem::is_regular_file(a, ignored);
  const auto plain = [&ignored](const std::string& path) { return std::filesystem::weakly_canonical(path, ignored); };
  return !std::filesystem::exists(a, ignored) && plain(a) == plain(b);
}

/// No output may be an input or another output: it would be emptied before it is read. A state may be saved where it
/// was loaded from.
void check_paths(const ReplayRequest& request) {
  const std::vector<std::pair<const char*, const std::string*>> outputs{{"--decisions", &request.decisions_path},
                                                                        {"--journal", &request.journal_path},
                                                                        {"--signals", &request.signals_path},
                                                                        {"--save-state", &request.save_state_path}};
  const std::vector<std::pair<const char*, const std::string*>> inputs{{"--trace", &request.trace_path},
                                                                       {"--truth", &request.truth_path},
                                                                       {"--units", &request.units_path},
                                                                       {"--config", &request.config_path},
                                                                       {"--load-state", &request.load_state_path}};
  const auto refuse = [](const char* a, const char* b, const std::string& path) {
    throw CommandError(kUsageError, fmt::format("{} and {} are the same file: {}", a, b, path));
  };
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto& [flag, path] = outputs[i];
    for (const auto& [input_flag, input] : inputs) {
      const bool own_state = path == &request.save_state_path && input == &request.load_state_path;
      if (!own_state && is_same_file(*path, *input)) refuse(flag, input_flag, *path);
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (is_same_file(*path, *outputs[j].second)) refuse(outputs[j].first, flag, *path);
    }
  }
}

Controller make_controller(const ReplayRequest& request, const std::vector<std::string>& names) {
  std::vector<Unit> units;
  if (request.units_path.empty()) {
    for (const std::string& name : names) units.push_back({.name = name});
  } else {
    units = with_exit_code(kInputError, [&] { return io::read_units(request.units_path, names); });
  }
  // The options have been checked by now; what is left to refuse are the units, or both together.
  const ExitCode blame = request.units_path.empty() ? kUsageError : kInputError;
  return with_exit_code(blame, [&] { return Controller(std::move(units), request.options); });
}

void print_summary(const ReplayRequest& request, const ReplaySummary& summary, const Truth* truth) {
  if (request.quiet) return;
  // Standard output belongs to whoever asked for it with `-`.
  const bool taken = request.decisions_path == "-" || request.journal_path == "-";
  std::FILE* const stream = taken ? stderr : stdout;
  const lab::DetectionScore* const score = truth != nullptr ? &truth->score() : nullptr;
  const std::string text = request.json_summary ? summary.json(score) : summary.text(score);
  if (std::fwrite(text.data(), 1, text.size(), stream) != text.size() || std::fflush(stream) != 0) {
    throw CommandError(kOutputError, "the summary could not be written");
  }
}

}  // namespace

void replay(const ReplayRequest& request) {
  check_paths(request);
  ProgressLine progress(stderr, !request.quiet && !request.live);
  const std::unique_ptr<io::TraceReader> trace =
      with_exit_code(kInputError, [&] { return open_watched(request, progress); });
  Controller controller = make_controller(request, trace->units());
  if (!request.load_state_path.empty()) {
    with_exit_code(kInputError, [&] { load_state(request.load_state_path, controller, request.quiet); });
  }
  std::optional<Truth> truth;
  if (!request.truth_path.empty()) {
    with_exit_code(kInputError, [&] { truth.emplace(request.truth_path, controller); });
  }
  Outputs outputs = with_exit_code(kOutputError, [&] { return Outputs(request, controller); });
  ReplaySummary summary(controller);
  std::optional<LiveHeatMap> map;
  if (request.live) map.emplace(controller, stderr, request.steps_per_second);

  io::TraceRow row;
  while (with_exit_code(kInputError, [&] { return trace->next(row); })) {
    const Alarm& alarm = controller.observe({.step = row.step, .norms = row.norms, .sampled = row.sampled});
    const Decision& decision = controller.decide();
    with_exit_code(kOutputError, [&] { outputs.write(controller, alarm, decision); });
    summary.add(alarm, decision);
    if (truth) with_exit_code(kInputError, [&] { truth->add(decision); });
    if (map) map->add(controller, decision);
    progress.set_steps(summary.steps());
  }
  if (truth) with_exit_code(kInputError, [&] { truth->finish(); });
  with_exit_code(kOutputError, [&] {
    outputs.close();
    if (!request.save_state_path.empty()) io::save_state(request.save_state_path, controller.save());
  });
  progress.clear();
  if (map) map->finish();
  if (!request.quiet) {
    for (const std::string& note : trace->notes()) say("note: " + note);
    if (truth) {
      for (const std::string& note : truth->notes()) say("note: " + note);
    }
  }
  print_summary(request, summary, truth ? &*truth : nullptr);
}

}  // namespace gnmr::app
