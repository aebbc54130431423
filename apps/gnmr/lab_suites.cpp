// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab_suites.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>

#include "gnmr/exit_codes.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/lab/cell_runner.h"
#include "gnmr/lab/regimes.h"
#include "gnmr/lab/setting_texts.h"
#include "gnmr/lab/suite.h"
#include "gnmr/lab/summary.h"
#include "gnmr/lab/worst_event.h"
#include "gnmr/lab_table.h"
#include "gnmr/lab_view.h"
#include "gnmr/live_view.h"
#include "gnmr/messages.h"
#include "gnmr/report/report.h"

namespace gnmr::app {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 6> kOwnSettings{"out", "seed", "resume", "label", "controller", "random_units"};
constexpr const char* kOwnLoop =
    "Your own loop, three lines (docs/train.md):\n"
    "  gnmr::Controller controller(units, options);                       // your linear layers, once\n"
    "  controller.observe({.step = step, .norms = norms});                // their gradient norms, each step\n"
    "  for (auto unit : controller.decide().recovered) run_high(unit);    // in the next step\n";

std::size_t cores() { return std::max(1U, std::thread::hardware_concurrency()); }

std::size_t jobs_of(const LabArguments& arguments) { return arguments.jobs > 0 ? arguments.jobs : cores(); }

/// What the suite sets itself cannot be passed through.
void check_train_texts(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    const std::string name = lab::parse_setting_text(text).name;
    if (name == "threads") throw Error("--train threads: use --threads");
    if (std::find(kOwnSettings.begin(), kOwnSettings.end(), name) != kOwnSettings.end()) {
      throw Error("--train " + name + ": the suite sets it itself");
    }
  }
}

/// A request with the flags that every suite has.
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

/// What a reader of the results must know of how they came about.
std::vector<std::string> notes_for(const lab::SuiteRequest& request, const LabArguments& arguments) {
  std::vector<std::string> notes;
  const run::TrainSettings settings = lab::settings_from_texts(request.texts);
  if (!settings.faults.empty()) {
    std::string kinds;
    for (const std::string& kind : settings.faults) kinds += (kinds.empty() ? "" : ", ") + kind;
    notes.push_back(
        fmt::format("Faults are INJECTED into low paths ({}): from step {} on about every {} steps, each for "
                    "{} steps in one layer. faults.csv in each run says where.",
                    kinds, settings.fault_from, settings.fault_every, settings.fault_steps));
  }
  notes.push_back(fmt::format("{} runs at a time on {} cores: step times are those of a busy machine.",
                              jobs_of(arguments), cores()));
  return notes;
}

std::string columns_text(const lab::Summary& summary) { return table_text(summary, style_for(stdout).columns); }

/// A suite that has been run, as far as it got.
struct SuiteRun {
  lab::Suite suite;
  lab::SuiteOutcome outcome;
  std::string report_path = {};  // empty: there is none
};

/// Runs one suite, prints its table and writes its summary and report.
SuiteRun run_suite(const lab::SuiteRequest& request, const LabArguments& arguments) {
  SuiteRun run{with_exit_code(kUsageError, [&] { return lab::Suite::open(request); }), {}};
  if (!arguments.quiet) {
    put(stderr, fmt::format("{}\n", printable(run.suite.title())));
    for (const std::string& note : run.suite.notes()) put(stderr, printable(note) + "\n");
    put(stderr, fmt::format("{} runs, folder {}\n\n", run.suite.cells().size(), printable(run.suite.folder())));
  }
  const lab::RunnerSettings settings{.program = {"/proc/self/exe", "train"},
                                     .jobs = jobs_of(arguments),
                                     .stall_time = std::chrono::seconds(arguments.stall_limit)};
  {
    LabView view(run.suite, {.stream = stderr, .quiet = arguments.quiet});
    run.outcome = lab::run_cells(run.suite, settings, view);
    view.finish(run.outcome.cells);
  }
  std::vector<std::optional<lab::CellResult>> results;
  for (const lab::CellStatus& cell : run.outcome.cells) results.push_back(cell.result);
  const lab::Summary summary = lab::summarise(run.suite, results);
  with_exit_code(kOutputError,
                 [&] { io::replace_file(run.suite.folder() + "/summary.json", lab::write_summary(summary)); });
  put(stdout, "\n" + columns_text(summary));
  try {
    run.report_path = report::write_report(run.suite.folder(), {}, {.program = "gnmr " GNMR_VERSION});
  } catch (const Error& error) {
    say(std::string("no report: ") + error.what());
  }
  return run;
}

/// The lines that every suite ends with.
void print_end(const SuiteRun& run) {
  std::string text;
  if (!run.report_path.empty()) text += "report: " + printable(run.report_path) + "\n";
  for (std::size_t cell = 0; cell < run.outcome.cells.size(); ++cell) {
    if (run.outcome.cells[cell].state != lab::CellState::failed) continue;
    text += run.suite.cells()[cell].name + " FAILED: " + printable(run.outcome.cells[cell].why) + "\n";
  }
  if (run.outcome.stopped) text += "stopped; the same command with --resume goes on\n";
  put(stdout, text);
}

int status_of(const SuiteRun& run) { return run.outcome.count(lab::CellState::failed) > 0 ? kInputError : kOk; }

/// The cell of an arm, by the arm's name; none where it has no result.
const lab::CellResult* result_of(const SuiteRun& run, std::string_view arm) {
  for (const lab::CellStatus& cell : run.outcome.cells) {
    if (cell.result && cell.result->arm == arm) return &*cell.result;
  }
  return nullptr;
}

/// A folder that is free: runs/demo, runs/demo-2, ...
std::string free_demo_folder() {
  std::string folder = "runs/demo";
  std::error_code ignored;
  for (int number = 2; fs::exists(folder, ignored); ++number) folder = fmt::format("runs/demo-{}", number);
  return folder;
}

void print_demo_facts(const SuiteRun& run) {
  std::string text = "\n";
  if (const lab::CellResult* const gnmr = result_of(run, "gnmr")) {
    const auto worst = lab::worst_event(run.suite.folder() + "/" + gnmr->run);
    text +=
        "worst event: " + (worst ? printable(lab::worst_event_text(*worst)) : "no unit was sent to recovery") + "\n";
  }
  if (const lab::CellResult* const healthy = result_of(run, "healthy")) {
    text += fmt::format("healthy run: {} recoveries in {} steps of {} units, {:.1f}% of unit-steps in recovery\n",
                        healthy->admissions, healthy->steps, healthy->units, 100 * healthy->share_mean);
  }
  put(stdout, text);
}

}  // namespace

int run_stress(const StressArguments& arguments) {
  std::vector<std::string> names = arguments.regimes;
  if (std::find(names.begin(), names.end(), "all") != names.end()) {
    names.clear();
    for (const lab::Regime& regime : lab::regimes()) names.push_back(regime.name);
  }
  const std::vector<lab::Arm> arms = with_exit_code(kUsageError, [&] {
    check_train_texts(arguments.common.train);
    for (const std::string& name : names) lab::find_regime(name);
    return arguments.arms.empty() ? lab::stress_arms() : lab::choose_arms(arguments.arms);
  });
  const std::string out = arguments.common.out.empty() ? "runs/stress" : arguments.common.out;
  int status = kOk;
  for (const std::string& name : names) {
    const lab::Regime& regime = lab::find_regime(name);
    std::vector<std::string> texts = lab::stress_texts();
    texts.insert(texts.end(), regime.texts.begin(), regime.texts.end());
    if (!arguments.model.empty()) texts.push_back("model=" + arguments.model);
    if (!arguments.max_o.empty()) texts.push_back("max_o=" + arguments.max_o);
    lab::SuiteRequest request =
        with_exit_code(kUsageError, [&] { return request_from(arguments.common, out + "/" + name, std::move(texts)); });
    request.title = regime.name + ": " + regime.about;
    request.notes = with_exit_code(kUsageError, [&] { return notes_for(request, arguments.common); });
    request.seeds = arguments.seeds;
    request.arms = arms;
    request.recipe_json = regime.recipe_json;
    const SuiteRun run = run_suite(request, arguments.common);
    print_end(run);
    if (status == kOk) status = status_of(run);
    if (run.outcome.stopped) break;
  }
  return status;
}

int run_demo(const DemoArguments& arguments) {
  with_exit_code(kUsageError, [&] { check_train_texts(arguments.common.train); });
  const std::string folder = arguments.common.out.empty() ? free_demo_folder() : arguments.common.out;
  lab::SuiteRequest request =
      with_exit_code(kUsageError, [&] { return request_from(arguments.common, folder, lab::demo_texts()); });
  request.title = "A small model trained in FP8, with faults INJECTED on purpose";
  request.notes = with_exit_code(kUsageError, [&] { return notes_for(request, arguments.common); });
  request.notes.push_back(
      "FP8 + GNMR measures its casts (--evidence) for the line below the table: its steps take longer for it.");
  request.seeds = {arguments.seed};
  request.arms = lab::demo_arms();
  const SuiteRun run = run_suite(request, arguments.common);
  print_demo_facts(run);
  print_end(run);
  put(stdout, std::string("\n") + kOwnLoop);
  return status_of(run);
}

}  // namespace gnmr::app
