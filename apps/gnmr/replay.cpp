// SPDX-License-Identifier: Apache-2.0
#include "gnmr/replay.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gnmr/core/controller.h"
#include "gnmr/core/message_text.h"
#include "gnmr/exit_codes.h"
#include "gnmr/io/decisions.h"
#include "gnmr/io/journal_writer.h"
#include "gnmr/io/log_fields.h"
#include "gnmr/io/options_json.h"
#include "gnmr/io/signals_file.h"
#include "gnmr/io/state_file.h"
#include "gnmr/lab/detection_score.h"
#include "gnmr/live_view.h"
#include "gnmr/messages.h"
#include "gnmr/replay_summary.h"
#include "gnmr/trace_input.h"

namespace gnmr::app {
namespace {

/// Ground truth beside the trace, and how the decisions meet it.
class Truth {
 public:
  Truth(const std::string& path, const Controller& controller)
      : beside_(path, controller.units()),
        score_(controller.units().size(), {controller.recovered().begin(), controller.recovered().end()}) {}

  void add(const Decision& decision) { score_.add(beside_.at(decision.step), decision); }
  void finish() { beside_.finish(); }
  std::vector<std::string> notes() const { return beside_.notes(); }
  const lab::DetectionScore& score() const { return score_; }

 private:
  TruthBeside beside_;
  lab::DetectionScore score_;
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

  void write(const Controller& controller, const Outcome& outcome) {
    if (decisions_) decisions_->write(outcome.decision);
    if (journal_) journal_->step(controller, outcome.alarm, outcome.decision);
    if (signals_ && row_++ % signals_every_ == 0) signals_->write(outcome.step, controller);
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
  const auto list = [](const char* one, const char* many, const std::vector<std::string>& names) {
    if (names.empty()) return;
    const std::string first = names.size() == 1 ? "" : "first: ";
    say(fmt::format("state: {} ({}{})", counted(names.size(), one, many), first, printable(names.front())));
  };
  list("unit is new and starts afresh", "units are new and start afresh", report.new_units);
  list("unit is not in this trace and was dropped", "units are not in this trace and were dropped",
       report.unknown_units);
  list("unit no longer fits the budget and was released", "units no longer fit the budget and were released",
       report.released_units);
}

/// No output may be an input or another output: it would be emptied before it is read. A state may be saved where it
/// was loaded from.
void check_paths(const ReplayRequest& request) {
  const std::vector<std::pair<const char*, const std::string*>> outputs{{"--decisions", &request.decisions_path},
                                                                        {"--journal", &request.journal_path},
                                                                        {"--signals", &request.signals_path},
                                                                        {"--save-state", &request.save_state_path}};
  const std::vector<std::pair<const char*, const std::string*>> inputs{{"--trace", &request.input.path},
                                                                       {"--truth", &request.input.truth_path},
                                                                       {"--units", &request.input.units_path},
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

/// A log has norms only: no errors, and no update to act on.
void warn_of_options_without_effect(const ReplayRequest& request) {
  if (request.quiet) return;
  for (const std::string& option : request.named_options) {
    const std::string why = why_without_effect(option, request.options, norms_only());
    if (!why.empty()) say(fmt::format("note: {} has no effect in a replay, since {}", io::option_flag(option), why));
  }
}

Controller make_controller(const ReplayRequest& request, const std::vector<std::string>& names) {
  std::vector<Unit> units = with_exit_code(kInputError, [&] { return units_of_trace(request.input, names); });
  // The options have been checked by now; what is left to refuse are the units, or both together.
  const ExitCode blame = request.input.units_path.empty() ? kUsageError : kInputError;
  return with_exit_code(blame, [&] { return Controller(std::move(units), request.options, norms_only()); });
}

void print_summary(const ReplayRequest& request, const ReplaySummary& summary, const Truth* truth,
                   const std::string& run) {
  if (request.quiet) return;
  // Standard output belongs to whoever asked for it with `-`.
  const bool taken = request.decisions_path == "-" || request.journal_path == "-";
  std::FILE* const stream = taken ? stderr : stdout;
  const lab::DetectionScore* const score = truth != nullptr ? &truth->score() : nullptr;
  const std::string text = request.json_summary ? summary.json(score, run) : summary.text(score, run);
  if (std::fwrite(text.data(), 1, text.size(), stream) != text.size() || std::fflush(stream) != 0) {
    throw CommandError(kOutputError, "the summary could not be written");
  }
}

/// One run; `run` is its name where the trace has several, else empty.
void replay_run(const ReplayRequest& request, io::TraceReader& trace, ProgressLine& progress, const std::string& run) {
  Controller controller = make_controller(request, trace.units());
  if (!request.load_state_path.empty()) {
    with_exit_code(kInputError, [&] { load_state(request.load_state_path, controller, request.quiet); });
  }
  std::optional<Truth> truth;
  if (!request.input.truth_path.empty()) {
    with_exit_code(kInputError, [&] { truth.emplace(request.input.truth_path, controller); });
  }
  Outputs outputs = with_exit_code(kOutputError, [&] { return Outputs(request, controller); });
  ReplaySummary summary(controller);
  std::optional<LiveHeatMap> map;
  if (request.live) map.emplace(controller, stderr, request.steps_per_second);

  io::TraceRow row;
  while (with_exit_code(kInputError, [&] { return trace.next(row); })) {
    controller.begin(row.step);
    const Outcome& outcome = controller.report({.step = row.step, .norms = row.norms, .sampled = row.sampled});
    with_exit_code(kOutputError, [&] { outputs.write(controller, outcome); });
    summary.add(outcome.alarm, outcome.decision);
    if (truth) with_exit_code(kInputError, [&] { truth->add(outcome.decision); });
    if (map) map->add(controller, outcome.decision);
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
    const std::string of_run = run.empty() ? "" : "run " + run + ": ";
    for (const std::string& note : trace.notes()) say("note: " + printable(of_run + note));
    if (truth) {
      for (const std::string& note : truth->notes()) say("note: " + note);
    }
  }
  print_summary(request, summary, truth ? &*truth : nullptr, run);
}

/// What can be done for one run only.
void refuse_for_several_runs(const ReplayRequest& request, const std::vector<std::string>& runs) {
  const std::vector<std::pair<const char*, bool>> flags{{"--decisions", !request.decisions_path.empty()},
                                                        {"--journal", !request.journal_path.empty()},
                                                        {"--signals", !request.signals_path.empty()},
                                                        {"--load-state", !request.load_state_path.empty()},
                                                        {"--save-state", !request.save_state_path.empty()},
                                                        {"--truth", !request.input.truth_path.empty()},
                                                        {"--live", request.live}};
  for (const auto& [flag, given] : flags) {
    if (!given) continue;
    throw CommandError(kUsageError, fmt::format("{} is for one run, and {} has {}: name one with --run, such as {}",
                                                flag, request.input.path, runs.size(), printable(runs.front())));
  }
}

void replay_each_run(const ReplayRequest& request, const std::vector<std::string>& runs) {
  refuse_for_several_runs(request, runs);
  std::string without_norms;
  std::size_t replayed = 0;
  for (const std::string& run : runs) {
    ReplayRequest one = request;
    one.input.options.run = run;
    ProgressLine progress(stderr, !request.quiet);
    std::unique_ptr<io::TraceReader> trace;
    try {
      trace = open_watched_trace(one.input, progress);
    } catch (const io::NoNormsError& error) {
      // Folders of evaluations stand beside those of training.
      progress.clear();
      if (without_norms.empty()) without_norms = error.what();
      if (!request.quiet) say("note: run " + printable(run) + " has no gradient norms and is left out");
      continue;
    } catch (const Error& error) {
      throw CommandError(kInputError, error.what());
    }
    if (replayed++ > 0 && !request.quiet && !request.json_summary) put(stdout, "\n");
    replay_run(one, *trace, progress, run);
  }
  if (replayed == 0) throw CommandError(kInputError, without_norms);
}

}  // namespace

void replay(const ReplayRequest& request) {
  check_paths(request);
  warn_of_options_without_effect(request);
  const std::vector<std::string> runs = with_exit_code(kInputError, [&] { return runs_to_read(request.input); });
  if (runs.size() > 1) return replay_each_run(request, runs);
  ProgressLine progress(stderr, !request.quiet && !request.live);
  const std::unique_ptr<io::TraceReader> trace =
      with_exit_code(kInputError, [&] { return open_watched_trace(request.input, progress); });
  replay_run(request, *trace, progress, "");
}

}  // namespace gnmr::app
