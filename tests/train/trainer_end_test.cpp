// SPDX-License-Identifier: Apache-2.0
// With lag 1 each batch makes its update, at its own learning rate, whatever is held and when: also the last ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gnmr/run/run_batches.h"
#include "train/small_run.h"
#include "train/trouble.h"

namespace gnmr::train {
namespace {

using testing::finish;
using testing::FinishedRun;
using testing::late_settings;
using testing::nan_in;
using testing::SmallRuns;
using testing::with;

/// The steps whose updates were made, by their batches.
std::map<std::int64_t, std::vector<run::TrainLine>> updates_of(const FinishedRun& done) {
  std::map<std::int64_t, std::vector<run::TrainLine>> updates;
  for (const run::TrainLine& line : done.recorder.lines) {
    if (line.applied) updates[run::batch_of(line)].push_back(line);
  }
  return updates;
}

/// Each of the batches 1 to `count` has made one update, and no other batch has run.
void expect_all_batches(const FinishedRun& done, std::int64_t count, const std::string& what) {
  const auto updates = updates_of(done);
  EXPECT_EQ(updates.size(), static_cast<std::size_t>(count)) << what;
  for (const auto& [batch, lines] : updates) EXPECT_EQ(lines.size(), 1u) << what << ", batch " << batch;
  for (const run::TrainLine& line : done.recorder.lines) EXPECT_LE(run::batch_of(line), count) << what;
  EXPECT_TRUE(done.outcome.finished) << what;
}

TEST(TrainerEnd, ABatchHasTheRateThatItHasWithoutHolds) {
  const SmallRuns runs;
  run::TrainSettings settings = late_settings(runs, "calm");
  settings.then_at = 15;
  settings.then_lr = 0.002;
  settings.options.max_trials = 100;
  settings.options.max_o = 0;
  const auto calm = updates_of(finish(settings, {}, with({})));
  settings.out = runs.file("held");
  const FinishedRun held = finish(settings, {}, with(nan_in({12, 15})));
  ASSERT_EQ(held.outcome.control.held, 2u);
  expect_all_batches(held, settings.steps, "12 and 15 held");
  for (const auto& [batch, lines] : updates_of(held)) EXPECT_EQ(lines[0].lr, calm.at(batch)[0].lr) << batch;
}

TEST(TrainerEnd, TheLastBatchesComeAgainAndNoneIsRunInTheirPlace) {
  const SmallRuns runs;
  for (const std::set<std::int64_t>& held : {std::set<std::int64_t>{20}, {19}, {19, 20}, {18, 20}, {18, 19, 20}}) {
    std::string name;
    for (const std::int64_t batch : held) name += "-" + std::to_string(batch);
    run::TrainSettings settings = late_settings(runs, name);
    settings.steps = 20;
    settings.eval_every = 1;
    settings.norms = true;
    settings.options.max_trials = 100;
    settings.options.max_o = 0;
    const FinishedRun done = finish(settings, {}, with(nan_in(held)));
    expect_all_batches(done, settings.steps, name);
    EXPECT_EQ(done.outcome.control.held, held.size()) << name;
    // Whoever reads the files knows by them that the run has ended (gnmr/lab/cell.h).
    EXPECT_EQ(done.recorder.evals.back().step, done.outcome.last_step) << name;
    EXPECT_EQ(done.recorder.lines.back().step, done.outcome.last_step) << name;
    // From the last fresh batch on there is one evaluation.
    const auto fresh = std::find_if(done.recorder.lines.begin(), done.recorder.lines.end(),
                                    [&](const auto& line) { return run::batch_of(line) == settings.steps; });
    const auto late = std::count_if(done.recorder.evals.begin(), done.recorder.evals.end(),
                                    [&](const auto& line) { return line.step >= fresh->step; });
    EXPECT_EQ(late, 1) << name;
  }
}

TEST(TrainerEnd, ARunHasAtMostOneStepMoreThanTwicePerBatch) {
  const SmallRuns runs;
  run::TrainSettings settings = late_settings(runs, "always");
  settings.steps = 16;
  settings.options.max_trials = 100;
  settings.options.max_o = 0;
  std::set<std::int64_t> all;
  for (std::int64_t batch = 1; batch <= settings.steps; ++batch) all.insert(batch);
  const FinishedRun done = finish(settings, {}, with(nan_in(all)));
  expect_all_batches(done, settings.steps, "every batch held");
  EXPECT_EQ(done.outcome.control.held, all.size());
  EXPECT_EQ(done.recorder.lines.size(), 2 * all.size());
  EXPECT_LE(done.outcome.last_step, 2 * settings.steps + 1);
}

}  // namespace
}  // namespace gnmr::train
