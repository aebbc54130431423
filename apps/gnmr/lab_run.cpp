// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <thread>

#include "gnmr/core/message_text.h"
#include "gnmr/exit_codes.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/lab/setting_texts.h"
#include "gnmr/lab_table.h"
#include "gnmr/lab_view.h"
#include "gnmr/live_view.h"
#include "gnmr/messages.h"
#include "gnmr/report/report.h"

namespace gnmr::app {
namespace {

constexpr std::array<std::string_view, 6> kOwnSettings{"out", "seed", "resume", "label", "controller", "random_units"};

std::string steps_text(std::int64_t steps) { return counted(static_cast<std::uint64_t>(steps), "step"); }

std::size_t cores() { return std::max(1U, std::thread::hardware_concurrency()); }

std::size_t jobs_of(const LabArguments& arguments) { return arguments.jobs > 0 ? arguments.jobs : cores(); }

}  // namespace

void check_train_texts(const std::vector<std::string>& texts, const std::vector<std::string>& own) {
  for (const std::string& text : texts) {
    const std::string name = lab::parse_setting_text(text).name;
    if (name == "threads") throw Error("--train threads: use --threads");
    if (std::find(kOwnSettings.begin(), kOwnSettings.end(), name) != kOwnSettings.end() ||
        std::find(own.begin(), own.end(), name) != own.end()) {
      throw Error("--train " + name + ": the suite sets it itself");
    }
  }
}

lab::SuiteRequest request_from(const LabArguments& arguments, const std::string& folder,
                               std::vector<std::string> texts) {
  if (arguments.steps > 0) texts.push_back(fmt::format("steps={}", arguments.steps));
  texts.insert(texts.end(), arguments.train.begin(), arguments.train.end());
  lab::SuiteRequest request{.folder = folder, .title = {}, .texts = std::move(texts), .resume = arguments.resume};
  request.threads = arguments.threads;
  if (request.threads == 0 && !arguments.resume) {
    request.threads = static_cast<std::int64_t>(std::max<std::size_t>(cores() / jobs_of(arguments), 1));
  }
  return request;
}

std::vector<std::string> notes_for(const lab::SuiteRequest& request, const LabArguments& arguments) {
  std::vector<std::string> notes;
  const lab::ExperimentSettings experiment = lab::settings_from_texts(request.texts).experiment;
  if (!experiment.faults.empty()) {
    std::string kinds;
    for (const std::string& kind : experiment.faults) kinds += (kinds.empty() ? "" : ", ") + kind;
    notes.push_back(fmt::format(
        "Faults are INJECTED into low paths ({}): from step {} on about every {}, each for {} in one "
        "layer. faults.csv in each run has the places.",
        kinds, experiment.fault_from, steps_text(experiment.fault_every), steps_text(experiment.fault_steps)));
  }
  notes.push_back(fmt::format("{} at a time on {}: step times are those of a busy machine.",
                              counted(jobs_of(arguments), "run"), counted(cores(), "core")));
  return notes;
}

std::string columns_text(const lab::Summary& summary) { return table_text(summary, style_for(stdout).columns); }

std::vector<std::optional<lab::CellResult>> SuiteRun::results() const {
  std::vector<std::optional<lab::CellResult>> results;
  for (const lab::CellStatus& cell : outcome.cells) results.push_back(cell.result);
  return results;
}

SuiteRun run_suite(const lab::SuiteRequest& request, const LabArguments& arguments) {
  SuiteRun run{with_exit_code(kUsageError, [&] { return lab::Suite::open(request); }), {}};
  if (!arguments.quiet) {
    put(stderr, fmt::format("{}\n", printable(run.suite.title())));
    for (const std::string& note : run.suite.notes()) put(stderr, printable(note) + "\n");
    put(stderr,
        fmt::format("{}, folder {}\n\n", counted(run.suite.cells().size(), "run"), printable(run.suite.folder())));
  }
  const lab::RunnerSettings settings{.program = {"/proc/self/exe", "train"},
                                     .jobs = jobs_of(arguments),
                                     .stall_time = std::chrono::seconds(arguments.stall_limit)};
  {
    LabView view(run.suite, {.stream = stderr, .quiet = arguments.quiet});
    run.outcome = lab::run_cells(run.suite, settings, view);
  }
  const lab::Summary summary = lab::summarise(run.suite, run.results());
  with_exit_code(kOutputError,
                 [&] { io::replace_file(run.suite.folder() + "/summary.json", lab::write_summary(summary)); });
  if (arguments.prints_table) put(stdout, "\n" + columns_text(summary));
  try {
    run.report_path = report::write_report(run.suite.folder(), {}, {.program = "gnmr " GNMR_VERSION});
  } catch (const Error& error) {
    say(std::string("no report: ") + error.what());
  }
  return run;
}

void print_end(const SuiteRun& run, std::FILE* stream) {
  std::string text;
  if (!run.report_path.empty()) text += "report: " + printable(run.report_path) + "\n";
  for (std::size_t cell = 0; cell < run.outcome.cells.size(); ++cell) {
    if (run.outcome.cells[cell].state != lab::CellState::failed) continue;
    text += run.suite.cells()[cell].name + " FAILED: " + printable(run.outcome.cells[cell].why) + "\n";
  }
  if (run.outcome.stopped) text += "stopped; the same command with --resume goes on\n";
  put(stream, text);
}

int status_of(const SuiteRun& run) {
  if (run.outcome.count(lab::CellState::failed) > 0) return kInputError;
  return run.outcome.stopped ? kStopped : kOk;
}

}  // namespace gnmr::app
