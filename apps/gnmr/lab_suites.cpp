// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab_suites.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "gnmr/core/message_text.h"
#include "gnmr/exit_codes.h"
#include "gnmr/lab/regimes.h"
#include "gnmr/lab/worst_event.h"
#include "gnmr/messages.h"

namespace gnmr::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOwnLoop =
    "Your own loop, three lines (docs/c-api.md):\n"
    "  gnmr::Controller controller(units, options, gnmr::norms_only());   // your linear layers, once\n"
    "  for (auto unit : controller.begin(step).recovered) run_high(unit); // before each step\n"
    "  controller.report({.step = step, .norms = norms});                 // their gradient norms, after it\n";

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
    const auto steps = static_cast<std::uint64_t>(healthy->steps);
    const auto units = static_cast<std::uint64_t>(healthy->units);
    text += fmt::format("healthy run: {} in {} of {}, {:.1f}% of unit-steps in recovery\n",
                        counted(healthy->admissions, "recovery", "recoveries"), counted(steps, "step"),
                        counted(units, "unit"), 100 * healthy->share_mean);
  }
  const lab::CellResult* const high = result_of(run, "high");
  const lab::CellResult* const low = result_of(run, "int4");
  const lab::CellResult* const gnmr = result_of(run, "int4-gnmr");
  if (high != nullptr && low != nullptr && gnmr != nullptr && low->loss > high->loss) {
    text += fmt::format("INT4 activations, nothing injected: GNMR closes {:.0f}% of the gap to high precision\n",
                        100 * (low->loss - gnmr->loss) / (low->loss - high->loss));
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
  request.title = "A small model trained in FP8, with faults INJECTED on purpose, and with INT4 activations";
  request.notes = with_exit_code(kUsageError, [&] { return notes_for(request, arguments.common); });
  request.notes.push_back(
      "FP8 + GNMR measures quantization (--evidence) for the line below the table, which makes its steps longer.");
  request.seeds = {arguments.seed};
  request.arms = lab::demo_arms();
  const SuiteRun run = run_suite(request, arguments.common);
  print_demo_facts(run);
  print_end(run);
  put(stdout, std::string("\n") + kOwnLoop);
  return status_of(run);
}

}  // namespace gnmr::app
