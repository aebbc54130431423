// SPDX-License-Identifier: Apache-2.0
// Runs whose text, learning rate or weights change, and runs on samples that a model makes.
#include <gtest/gtest.h>

#include <cmath>

#include "gnmr/core/error.h"
#include "gnmr/models/student_teacher.h"
#include "train/small_run.h"

namespace gnmr::train {
namespace {

using testing::FinishedRun;
using testing::Recorder;
using testing::same_weights;
using testing::SmallRuns;

/// `settings` in one go, and stopped after `stop_after` and resumed: the same weights bit for bit.
void expect_resumes(run::TrainSettings settings, std::int64_t stop_after, const PlanModel& plan) {
  const auto train = [&](Recorder& recorder) {
    nn::Collective alone;
    Trainer trainer(settings, recorder, alone, {.plan_model = plan, .make_experiment = testing::injected_faults});
    const run::TrainOutcome outcome = trainer.run();
    std::vector<at::Tensor> weights;
    for (const at::Tensor& parameter : trainer.model().parameters()) weights.push_back(parameter.detach().clone());
    return std::pair(outcome, weights);
  };
  const std::string folder = settings.out;
  settings.out = folder + "-whole";
  Recorder whole_recorder;
  const auto whole = train(whole_recorder);
  settings.out = folder + "-parts";
  settings.resume = true;
  Recorder first;
  first.stop_after = stop_after;
  EXPECT_FALSE(train(first).first.finished);
  Recorder second;
  const auto resumed = train(second);
  EXPECT_EQ(second.start.first_step, stop_after + 1);
  EXPECT_TRUE(resumed.first.finished);
  EXPECT_TRUE(same_weights(whole.second, resumed.second));
  ASSERT_FALSE(second.lines.empty());
  EXPECT_EQ(second.lines.back().loss, whole_recorder.lines.back().loss);
}

TEST(ChangingRun, TheLearningRateJumpsAndTheTextChangesAtTheStep) {
  const SmallRuns runs;
  run::TrainSettings settings = runs.settings("run");
  settings.steps = 12;
  settings.warmup = 0;
  settings.min_lr = 1;
  const FinishedRun before = testing::finish(settings);
  settings.out = runs.file("changed");
  settings.then_at = 7;
  settings.then_lr = 0.02;
  settings.then_data = {"@shifted"};
  const FinishedRun changed = testing::finish(settings);
  ASSERT_EQ(changed.recorder.lines.size(), 12u);
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(changed.recorder.lines[i].lr, i < 6 ? 0.01 : 0.02) << i;
    if (i < 6) {
      EXPECT_EQ(changed.recorder.lines[i].loss, before.recorder.lines[i].loss) << i;
    }
  }
  // Bytes that were never there are as unlikely as any: worse than what was learned before.
  EXPECT_GT(changed.recorder.lines[6].loss, before.recorder.lines[6].loss + 0.5);
  EXPECT_NE(changed.recorder.start.data.find("from step 7 on"), std::string::npos) << changed.recorder.start.data;
}

TEST(ChangingRun, ResumesBitForBitBeforeAndAfterTheChange) {
  for (const std::int64_t stop_after : {4, 9}) {
    const SmallRuns runs;
    run::TrainSettings settings = runs.settings("run");
    settings.steps = 12;
    settings.then_at = 7;
    settings.then_lr = 0.02;
    settings.then_data = {"@shifted"};
    settings.checkpoint_every = 1;
    expect_resumes(settings, stop_after, plan_llama);
  }
}

TEST(ChangingRun, TransplantedOutliersLeaveTheLossAsItIs) {
  const SmallRuns runs;
  run::TrainSettings settings = runs.settings("run");
  settings.steps = 8;
  settings.recipe = "none";
  const FinishedRun before = testing::finish(settings);
  settings.out = runs.file("transplanted");
  settings.experiment.transplant_at = 6;
  settings.experiment.transplant_channels = 3;
  settings.experiment.transplant_factor = 16;
  const FinishedRun changed = testing::finish(settings);
  ASSERT_EQ(changed.recorder.lines.size(), 8u);
  // The factor is a power of two: in high precision not a bit is other in the step of the change.
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(changed.recorder.lines[i].loss, before.recorder.lines[i].loss) << i;
  }
  EXPECT_NE(changed.recorder.lines[6].loss, before.recorder.lines[6].loss) << "nothing was transplanted";
  // The moments went along, so the steps after it are of the usual size.
  EXPECT_NEAR(changed.recorder.lines[7].loss, before.recorder.lines[7].loss, 0.1);
}

TEST(ChangingRun, TransplantedOutliersHarmTheLowPath) {
  const SmallRuns runs;
  run::TrainSettings settings = runs.settings("run");
  settings.steps = 6;
  settings.recipe = "int8";
  settings.controller = "watch";
  const auto gap = [&] {
    const run::EvalLine eval = testing::finish(settings).recorder.evals.back();
    return eval.loss_low.value() - eval.loss_high.value();
  };
  const double usual = gap();
  settings.out = runs.file("transplanted");
  settings.experiment.transplant_at = 6;
  settings.experiment.transplant_factor = 4096;
  EXPECT_GT(gap(), 10 * std::abs(usual) + 0.01);
}

TEST(ChangingRun, TransplantsResumeBitForBit) {
  for (const std::int64_t stop_after : {4, 9}) {
    const SmallRuns runs;
    run::TrainSettings settings = runs.settings("run");
    settings.steps = 12;
    settings.experiment.transplant_at = 7;
    settings.checkpoint_every = 1;
    expect_resumes(settings, stop_after, plan_llama);
  }
}

TEST(ChangingRun, ReenactedBugsResumeBitForBit) {
  const SmallRuns runs;
  run::TrainSettings settings = runs.settings("run");
  settings.steps = 12;
  settings.checkpoint_every = 1;
  settings.experiment.faults = {"cached-weight", "missed-amax", "wrong-amax"};
  settings.experiment.fault_every = 1;
  settings.experiment.fault_from = 3;
  expect_resumes(settings, 8, plan_llama);
}

TEST(ChangingRun, AStudentResumesBitForBit) {
  const SmallRuns runs;
  run::TrainSettings settings = runs.settings("student");
  test::put_file(runs.file("student.json"),
                 models::config_json(models::StudentTeacherConfig{.hidden = 32, .intermediate = 64, .layers = 2}));
  settings.model = runs.file("student.json");
  settings.data.clear();
  settings.recipe = "mxfp8";
  settings.steps = 12;
  settings.checkpoint_every = 1;
  expect_resumes(settings, 5, plan_any_model);
}

TEST(ChangingRun, AStudentLearnsAndRefusesWhatItHasNot) {
  const SmallRuns runs;
  run::TrainSettings settings = runs.settings("student");
  settings.model = "student-teacher";
  settings.steps = 40;
  settings.batch = 8;
  const auto refused = [&](const run::TrainSettings& wrong) {
    return test::error_of<Error>([&] { plan_any_model(wrong, at::kCPU); });
  };
  EXPECT_NE(refused(settings).find("--data: the model student-teacher makes its own samples"), std::string::npos);
  settings.data.clear();
  settings.then_data = {"@shifted"};
  EXPECT_NE(refused(settings).find("--then-data"), std::string::npos);
  settings.then_data.clear();
  settings.experiment.transplant_at = 5;
  EXPECT_NE(refused(settings).find("--transplant-at: the model student-teacher has no SwiGLU"), std::string::npos);
  settings.experiment.transplant_at = 0;
  Recorder recorder;
  nn::Collective alone;
  Trainer trainer(settings, recorder, alone, {.plan_model = plan_any_model, .make_experiment = {}});
  EXPECT_TRUE(trainer.run().finished);
  EXPECT_LT(recorder.lines.back().loss, 0.8 * recorder.lines.front().loss);
  EXPECT_EQ(recorder.evals.size(), 1u);
}

TEST(ChangingRun, AChangeNeedsAStepAndAStepAChange) {
  const SmallRuns runs;
  run::TrainSettings settings = runs.settings("run");
  const auto refused = [&] { return test::error_of<Error>([&] { run::validate(settings); }); };
  settings.then_lr = 0.1;
  EXPECT_NE(refused().find("`then_at`: expected at least 2"), std::string::npos) << refused();
  settings.then_at = 5;
  EXPECT_NO_THROW(run::validate(settings));
  settings.then_lr = 0;
  EXPECT_NE(refused().find("5 alone"), std::string::npos) << refused();
}

TEST(ChangingData, GivesTheSecondTextFromItsFirstBatchOn) {
  const SmallRuns runs;
  const DataSettings first{.files = {runs.file("text.txt")}, .batch = 2, .sequence = 16};
  const DataSettings second = data_after_change(first, {"@shifted"});
  const ChangingData data(first, second, 4);
  const Data plain(first);
  for (std::int64_t step = 1; step <= 6; ++step) {
    const Batch batch = data.training_batch(step, 0);
    const Batch expected = plain.training_batch(step < 4 ? step : step - 3, 0);
    const std::int64_t shift = step < 4 ? 0 : 128;
    EXPECT_TRUE(at::equal(batch.tokens, (expected.tokens + shift).remainder(256))) << step;
    EXPECT_TRUE(at::equal(batch.targets, (expected.targets + shift).remainder(256))) << step;
  }
  EXPECT_TRUE(at::equal(data.evaluation_batch(1).tokens, (plain.evaluation_batch(1).tokens + 128).remainder(256)));
  EXPECT_NE(data.fingerprint(), plain.fingerprint());
  const DataSettings other = data_after_change(first, {"b.txt"});
  EXPECT_EQ(other.files, (std::vector<std::string>{"b.txt"}));
  EXPECT_EQ(other.shift, 0);
}

}  // namespace
}  // namespace gnmr::train
