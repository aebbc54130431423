// SPDX-License-Identifier: Apache-2.0
// A forward product that overflows makes the loss and every gradient non-finite: norms can only call that common. The
// trial must find the one unit.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "train/small_run.h"

namespace gnmr::train {
namespace {

using testing::finish;
using testing::FinishedRun;
using testing::Recorder;
using testing::same_weights;
using testing::SmallRuns;

run::TrainSettings fault_settings(const SmallRuns& runs, const std::string& name, const std::string& fault) {
  run::TrainSettings settings = runs.settings(name);
  settings.recipe = "fp8-tensorwise";
  settings.steps = 60;
  settings.patrol = 0;  // the norms alone raise the alarm
  settings.experiment.faults = {fault};
  settings.experiment.fault_from = 12;
  settings.experiment.fault_every = 8;
  settings.experiment.fault_steps = 3;
  settings.options.selector = Selector::trial;
  settings.options.max_trials = 100;
  settings.options.max_o = 3;
  settings.options.lock_steps = 3;
  settings.options.warmup_samples = 5;
  // A model as small as this one has errors that vary, and norms that jump.
  settings.options.error_floor = 0.25;
  settings.options.error_ceiling = 12;
  return settings;
}

/// The layer of each fault, by its first step.
std::map<std::int64_t, std::string> faults_of(const run::TrainSettings& settings,
                                              const std::vector<std::string>& layer_names) {
  std::map<std::int64_t, std::string> faults;
  std::istringstream list(lab::make_experiment(settings, layer_names)->fault_list_text());
  for (std::string line; std::getline(list, line);) {
    const nlohmann::json fault = nlohmann::json::parse(line);
    faults.emplace(fault["first"], fault["layer"]);
  }
  return faults;
}

/// A run, the names of its layers caught on the way.
FinishedRun finish_naming(const run::TrainSettings& settings, std::vector<std::string>& layer_names) {
  return finish(settings, {}, [&](const run::TrainSettings& wanted, const std::vector<std::string>& names) {
    layer_names = names;
    return lab::make_experiment(wanted, names);
  });
}

std::vector<std::string> admitted_in(const io::JournalStepEntry& entry) {
  std::vector<std::string> units;
  for (const io::JournalEvent& event : entry.events) {
    if (event.event == io::JournalEventKind::admitted) units.push_back(event.unit);
  }
  return units;
}

TEST(ForwardOverflow, IsCommonToTheNorms) {
  const SmallRuns runs;
  run::TrainSettings settings = fault_settings(runs, "norms", "forward-overflow");
  settings.options.selector = Selector::norms;
  std::vector<std::string> names;
  const FinishedRun done = finish_naming(settings, names);
  const std::map<std::int64_t, std::string> faults = faults_of(settings, names);
  ASSERT_GE(faults.size(), 3U);
  EXPECT_GE(done.outcome.skipped_updates, 3 * static_cast<std::int64_t>(faults.size()) - 3);
  const io::Journal journal = io::read_journal(settings.out + "/journal.jsonl");
  for (const auto& [step, layer] : faults) {
    const io::JournalStepEntry& entry = journal.steps.at(static_cast<std::size_t>(step) - 1);
    EXPECT_FALSE(std::isfinite(done.recorder.lines.at(static_cast<std::size_t>(step) - 1).loss)) << step;
    EXPECT_EQ(entry.step->risks, names.size()) << "all gradients are to be non-finite in step " << step;
    EXPECT_TRUE(entry.step->common) << step;
    EXPECT_TRUE(admitted_in(entry).empty()) << step;
  }
}

TEST(ForwardOverflow, TheTrialFindsTheUnitAloneInTheStepItBegins) {
  const SmallRuns runs;
  for (const double patrol : {0.0, 1.0}) {
    run::TrainSettings settings = fault_settings(runs, "trial" + std::to_string(patrol), "forward-overflow");
    settings.patrol = patrol;
    std::vector<std::string> names;
    const FinishedRun done = finish_naming(settings, names);
    const std::map<std::int64_t, std::string> faults = faults_of(settings, names);
    ASSERT_GE(faults.size(), 3U);
    const io::Journal journal = io::read_journal(settings.out + "/journal.jsonl");
    std::map<std::int64_t, std::string> found;
    for (const io::JournalStepEntry& entry : journal.steps) {
      const std::vector<std::string> admitted = admitted_in(entry);
      if (admitted.empty()) continue;
      ASSERT_EQ(admitted.size(), 1U) << entry.number;
      found.emplace(entry.number, admitted[0]);
      ASSERT_EQ(entry.trials.size(), 1U) << entry.number;
      const io::JournalTrial& trial = entry.trials[0];
      EXPECT_EQ(trial.verdict, "numeric");
      EXPECT_EQ(trial.units, admitted);
      EXPECT_EQ(trial.places, std::vector<std::string>{"forward"});
      EXPECT_EQ(trial.errors, std::vector<double>{HUGE_VAL});
      EXPECT_FALSE(std::isfinite(trial.losses.at(0))) << entry.number;
      EXPECT_TRUE(std::isfinite(trial.losses.at(1))) << entry.number;
      EXPECT_EQ(trial.applied, true);
    }
    EXPECT_EQ(found, faults) << "each where and when it begins, and nothing else";
    EXPECT_EQ(done.outcome.skipped_updates, 0);
    for (const run::TrainLine& line : done.recorder.lines) EXPECT_TRUE(std::isfinite(line.loss)) << line.step;
    for (const at::Tensor& weight : done.weights) EXPECT_TRUE(weight.isfinite().all().item<bool>());
  }
}

TEST(ForwardOverflow, TheUpdateIsMadeWithTheCleanGradient) {
  const SmallRuns runs;
  run::TrainSettings settings = fault_settings(runs, "names", "forward-overflow");
  settings.patrol = 1;  // it answers the norms' alarms of healthy steps, which are not run again then
  std::vector<std::string> names;
  finish_naming(settings, names);
  const std::int64_t first = faults_of(settings, names).begin()->first;
  const auto weights_after = [&](run::TrainSettings stopped, const std::string& name) {
    stopped.out = runs.file(name);
    Recorder recorder;
    recorder.stop_after = first;
    return finish(stopped, std::move(recorder)).weights;
  };
  run::TrainSettings healthy = settings;
  healthy.experiment.faults.clear();
  healthy.set = {"*=high@" + std::to_string(first) + ":" + std::to_string(first)};
  EXPECT_TRUE(same_weights(weights_after(settings, "tried"), weights_after(healthy, "healthy")));
}

TEST(ForwardOverflow, OnceIsGoneInTheRerun) {
  const SmallRuns runs;
  const run::TrainSettings settings = fault_settings(runs, "once", "forward-overflow:once");
  std::vector<std::string> names;
  const FinishedRun done = finish_naming(settings, names);
  const std::map<std::int64_t, std::string> faults = faults_of(settings, names);
  ASSERT_GE(faults.size(), 3U);
  const io::Journal journal = io::read_journal(settings.out + "/journal.jsonl");
  for (const auto& [step, layer] : faults) {
    const io::JournalStepEntry& entry = journal.steps.at(static_cast<std::size_t>(step) - 1);
    ASSERT_EQ(entry.trials.size(), 1U) << step;
    EXPECT_EQ(entry.trials[0].verdict, "unlocated") << step;
    EXPECT_FALSE(std::isfinite(entry.trials[0].losses.at(0)));
    EXPECT_EQ(entry.trials[0].applied, true);
  }
  EXPECT_EQ(done.outcome.control.admissions, 0U);
  EXPECT_EQ(done.outcome.skipped_updates, 0);
  for (const run::TrainLine& line : done.recorder.lines) EXPECT_TRUE(std::isfinite(line.loss)) << line.step;
}

}  // namespace
}  // namespace gnmr::train
