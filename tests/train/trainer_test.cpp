// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/trainer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "gnmr/core/error.h"
#include "gnmr/models/safetensors.h"
#include "gnmr/run/evidence.h"
#include "io/file_size_limit.h"
#include "train/small_run.h"

namespace gnmr::train {
namespace {

using testing::decisions_of;
using testing::finish;
using testing::FinishedRun;
using testing::Recorder;
using testing::same_weights;
using testing::SmallRuns;
using testing::weight_distance;

TEST(Trainer, RunsRepeatBitForBit) {
  const SmallRuns runs;
  for (const char* const recipe : {"fp8-delayed", "nvfp4-hadamard"}) {
    run::TrainSettings settings = runs.settings(std::string("a") + recipe);
    settings.recipe = recipe;
    SmallRuns::add_faults(settings);
    const FinishedRun first = finish(settings);
    EXPECT_GT(first.outcome.control.admissions, 0u) << "there is something to repeat";
    EXPECT_LT(first.recorder.lines.back().loss, first.recorder.lines.front().loss - 1) << "it learns";
    settings.out = runs.file(std::string("b") + recipe);
    const FinishedRun second = finish(settings);
    EXPECT_TRUE(same_weights(first.weights, second.weights)) << recipe;
    EXPECT_EQ(first.recorder.lines, second.recorder.lines);
    EXPECT_EQ(first.recorder.evals, second.recorder.evals);
    EXPECT_EQ(first.high, second.high);
    settings.out = runs.file(std::string("c") + recipe);
    settings.seed = 1;
    EXPECT_FALSE(same_weights(finish(settings).weights, first.weights));
  }
}

TEST(Trainer, ThreadsChangeNoMoreThanRounding) {
  // Products of matrices are cut among threads by the library that makes them: bits may differ, no more.
  const SmallRuns runs;
  run::TrainSettings settings = runs.settings("one");
  settings.recipe = "none";
  settings.steps = 5;
  const FinishedRun one = finish(settings);
  settings.out = runs.file("two");
  settings.threads = 2;
  const FinishedRun two = finish(settings);
  EXPECT_LT(weight_distance(two.weights, one.weights), 1e-4);
  settings.out = runs.file("two again");
  EXPECT_TRUE(same_weights(finish(settings).weights, two.weights)) << "at one number of threads a run repeats";
}

TEST(Trainer, MicroBatchesAreOneBatch) {
  const SmallRuns runs;
  run::TrainSettings settings = runs.settings("one");
  settings.recipe = "none";
  settings.steps = 8;
  settings.batch = 8;
  const FinishedRun whole = finish(settings);
  settings.out = runs.file("two");
  settings.batch = 4;
  settings.accumulate = 2;
  const FinishedRun parts = finish(settings);
  for (std::size_t step = 0; step < whole.recorder.lines.size(); ++step) {
    const run::TrainLine& line = whole.recorder.lines[step];
    EXPECT_NEAR(parts.recorder.lines[step].loss, line.loss, 1e-4 * line.loss);
    EXPECT_NEAR(parts.recorder.lines[step].grad_norm, line.grad_norm, 1e-3 * line.grad_norm);
    EXPECT_EQ(parts.recorder.lines[step].tokens, line.tokens);
  }
  // Adam divides by the size of a gradient: where it is almost 0, rounding decides on its sign.
  EXPECT_LT(weight_distance(parts.weights, whole.weights), 2e-3);
}

TEST(Trainer, RecomputationChangesNoBit) {
  const SmallRuns runs;
  for (const char* const recipe : {"fp8-delayed", "nvfp4-hadamard", "fp8-deepseek"}) {
    for (const char* const granularity : {"layer", "product"}) {
      run::TrainSettings settings = runs.settings(std::string("kept-") + recipe + granularity);
      settings.recipe = recipe;
      settings.granularity = granularity;
      settings.evidence = true;
      settings.steps = 20;
      settings.accumulate = 2;
      settings.batch = 2;
      SmallRuns::add_faults(settings);
      const FinishedRun kept = finish(settings);
      const std::string kept_folder = settings.out;
      settings.out = runs.file(std::string("again-") + recipe + granularity);
      settings.recompute = true;
      const FinishedRun again = finish(settings);
      EXPECT_TRUE(same_weights(kept.weights, again.weights)) << recipe << " " << granularity;
      EXPECT_EQ(kept.recorder.lines, again.recorder.lines);
      EXPECT_EQ(kept.high, again.high);
      EXPECT_EQ(run::read_evidence(kept_folder + "/evidence.jsonl"),
                run::read_evidence(settings.out + "/evidence.jsonl"));
    }
  }
}

TEST(Trainer, AnUpdateThatIsNotFiniteIsNeverApplied) {
  // With this recipe an injected overflow becomes NaN.
  const SmallRuns runs;
  const std::string operand = R"({"format":"e4m3","scaling":"delayed","overflow":"non_finite","history":4})";
  test::put_file(runs.file("nan.json"), R"({"name":"nan","input":)" + operand + R"(,"weight":null})");
  for (const char* const controller : {"none", "watch", "gnmr"}) {
    run::TrainSettings settings = runs.settings(controller);
    settings.recipe = runs.file("nan.json");
    settings.controller = controller;
    SmallRuns::add_faults(settings);
    settings.experiment.faults = {"overflow"};
    settings.experiment.fault_from = 10;
    settings.experiment.fault_every = 8;
    Recorder recorder;
    std::vector<at::Tensor> before;
    std::vector<at::Tensor> now;
    std::vector<bool> changed;
    nn::Collective alone;
    Trainer trainer(settings, recorder, alone, {.plan_model = plan_llama, .make_experiment = testing::injected_faults});
    const auto copy = [&] {
      std::vector<at::Tensor> weights;
      for (const at::Tensor& parameter : trainer.model().parameters()) weights.push_back(parameter.detach().clone());
      return weights;
    };
    before = copy();
    recorder.after_step = [&](const run::TrainLine&) {
      now = copy();
      changed.push_back(!same_weights(before, now));
      before = now;
    };
    const run::TrainOutcome outcome = trainer.run();
    std::int64_t skipped = 0;
    for (std::size_t step = 0; step < changed.size(); ++step) {
      const run::TrainLine& line = recorder.lines[step];
      EXPECT_EQ(line.applied, changed[step]) << controller << " step " << line.step;
      EXPECT_EQ(line.applied, std::isfinite(line.grad_norm));
      if (!line.applied) ++skipped;
    }
    EXPECT_GT(skipped, 0) << "the faults came through";
    EXPECT_EQ(outcome.skipped_updates, skipped);
    for (const at::Tensor& weight : before) EXPECT_TRUE(weight.isfinite().all().item<bool>());
    const auto first = std::find(changed.begin(), changed.end(), false);
    EXPECT_NE(std::find(first, changed.end(), true), changed.end()) << "the run goes on";
    if (controller == std::string("gnmr")) {
      EXPECT_GT(outcome.control.admissions, 0u);
    }
  }
}

TEST(Trainer, WatchingChangesNothingAndControlDoes) {
  const SmallRuns runs;
  std::vector<FinishedRun> done;
  for (const char* const controller : {"none", "watch", "gnmr"}) {
    run::TrainSettings settings = runs.settings(controller);
    SmallRuns::add_faults(settings);
    settings.controller = controller;
    done.push_back(finish(settings));
  }
  EXPECT_TRUE(same_weights(done[0].weights, done[1].weights));
  EXPECT_FALSE(same_weights(done[1].weights, done[2].weights));
  EXPECT_FALSE(std::filesystem::exists(runs.file("none/journal.jsonl")));
  const io::Journal watched = io::read_journal(runs.file("watch/journal.jsonl"));
  EXPECT_EQ(watched.steps.size(), 30u);
  ASSERT_EQ(watched.modes.size(), 1u);
  EXPECT_EQ(watched.modes[0].mode, Mode::watch);
  EXPECT_GT(done[1].outcome.control.admissions, 0u) << "would-be decisions are written";
  for (const run::TrainLine& line : done[1].recorder.lines) EXPECT_EQ(line.high, 0);
  EXPECT_GT(done[2].outcome.control.high.recovered, 0u);
}

TEST(Trainer, CheckpointsLookTheSameWithAndWithoutControl) {
  const SmallRuns runs;
  run::TrainSettings settings = runs.settings("plain");
  settings.recipe = "none";
  settings.controller = "none";
  settings.steps = 3;
  finish(settings);
  const std::string step = "/checkpoints/step-00000003/";
  for (const char* const granularity : {"layer", "product", "block"}) {
    settings = runs.settings(granularity);
    settings.steps = 3;
    settings.granularity = granularity;
    settings.save_activations = "fp8";
    settings.evidence = true;
    finish(settings);
    for (const char* const name : {"model.safetensors", "optimizer.safetensors"}) {
      const models::TensorFile expected = models::read_safetensors(runs.file("plain") + step + name);
      const models::TensorFile found = models::read_safetensors(settings.out + step + name);
      EXPECT_EQ(found.metadata, expected.metadata);
      ASSERT_EQ(found.tensors.size(), expected.tensors.size());
      for (std::size_t index = 0; index < found.tensors.size(); ++index) {
        EXPECT_EQ(found.tensors[index].first, expected.tensors[index].first);
        EXPECT_EQ(found.tensors[index].second.sizes(), expected.tensors[index].second.sizes());
        EXPECT_EQ(found.tensors[index].second.scalar_type(), expected.tensors[index].second.scalar_type());
      }
    }
    EXPECT_EQ(test::content_of(settings.out + step + "config.json"),
              test::content_of(runs.file("plain") + step + "config.json"));
  }
}

TEST(Trainer, UnitsCanBeProductsBlocksAndSavedInputs) {
  const SmallRuns runs;
  const auto units = [&](const char* granularity, const char* saved) {
    run::TrainSettings settings = runs.settings(std::string(granularity) + saved);
    settings.granularity = granularity;
    settings.save_activations = saved;
    const FinishedRun done = finish(settings);
    EXPECT_LT(done.recorder.lines.back().loss, done.recorder.lines.front().loss - 1) << "it learns";
    EXPECT_NE(done.recorder.start.coverage.find("14 of 15 linear layers"), std::string::npos);
    std::vector<std::string> names;
    const io::Journal journal = io::read_journal(settings.out + "/journal.jsonl");
    for (const Unit& unit : journal.header->units) names.push_back(unit.name);
    for (const io::JournalStepEntry& step : journal.steps) EXPECT_EQ(step.step->sampled, names.size());
    return names;
  };
  EXPECT_EQ(units("block", "high"), (std::vector<std::string>{"layers.0", "layers.1"}));
  const auto products = units("product", "high");
  EXPECT_EQ(products.size(), 42u);
  EXPECT_EQ(products[1], "layers.0.q.input_gradient");
  const auto saved = units("layer", "fp8");
  EXPECT_EQ(saved.size(), 28u);
  EXPECT_EQ(saved[0], "layers.0.q.saved");
}

TEST(Trainer, EvidenceIsWrittenForRisksAndEvaluations) {
  const SmallRuns runs;
  run::TrainSettings settings = runs.settings("run");
  SmallRuns::add_faults(settings);
  settings.evidence = true;
  settings.eval_every = 10;
  const FinishedRun done = finish(settings);
  std::size_t evaluated = 0;
  std::size_t at_risk = 0;
  for (const run::EvidenceLine& line : run::read_evidence(settings.out + "/evidence.jsonl")) {
    (line.step % 10 == 0 ? evaluated : at_risk) += 1;
    EXPECT_GT(line.relative_error, 0);
  }
  EXPECT_GT(at_risk, 0u);
  EXPECT_GT(evaluated, 30u);
  EXPECT_LE(evaluated, 42u);
  ASSERT_EQ(done.recorder.evals.size(), 3u);
  EXPECT_TRUE(done.recorder.evals[0].loss_high && done.recorder.evals[0].loss_low);
  EXPECT_TRUE(done.recorder.evals[0].loss_trained);
}

TEST(Trainer, AFullDiskStopsNothing) {
  const SmallRuns runs;
  run::TrainSettings settings = runs.settings("full");
  settings.checkpoint_every = 15;
  settings.checkpoint_retry = 0;
  SmallRuns::add_faults(settings);
  FinishedRun full;
  {
    const test::FileSizeLimit limit(6000);
    full = finish(settings);
  }
  settings.out = runs.file("free");
  const FinishedRun free = finish(settings);
  EXPECT_TRUE(full.outcome.finished);
  EXPECT_TRUE(same_weights(full.weights, free.weights));
  ASSERT_EQ(full.recorder.notes.size(), 1u);
  EXPECT_NE(full.recorder.notes[0].find("step-00000015"), std::string::npos) << full.recorder.notes[0];
  EXPECT_NE(full.recorder.notes[0].find("could not be written"), std::string::npos) << full.recorder.notes[0];
  EXPECT_NE(full.outcome.unsaved.find("step-00000030"), std::string::npos) << full.outcome.unsaved;
  EXPECT_GT(full.outcome.dropped_lines, 0u);
  EXPECT_EQ(free.outcome.dropped_lines, 0u);
  EXPECT_TRUE(free.recorder.notes.empty());
  EXPECT_FALSE(io::read_journal(runs.file("full/journal.jsonl")).steps.empty());
}

TEST(Trainer, ARecipeMayBeDescribedAnewBeforeARunGoesOnButNotChanged) {
  const SmallRuns runs;
  const auto write = [&](const std::string& about, const std::string& format) {
    test::put_file(runs.file("mine.json"), R"({"name":"mine","about":")" + about + R"(","input":{"format":")" + format +
                                               R"("},"weight":null})");
  };
  run::TrainSettings settings = runs.settings("run");
  settings.recipe = runs.file("mine.json");
  settings.steps = 6;
  settings.checkpoint_every = 3;
  write("before", "e4m3");
  finish(settings);
  settings.resume = true;
  settings.resume_step = 3;
  write("after", "e4m3");
  EXPECT_TRUE(finish(settings).outcome.finished);
  write("after", "e5m2");
  const std::string message = test::error_of<Error>([&] { finish(settings); });
  EXPECT_NE(message.find("begun with another recipe"), std::string::npos) << message;
}

TEST(Trainer, ADamagedCheckpointIsRefusedAndAnEarlierOneGoesOn) {
  const SmallRuns runs;
  run::TrainSettings settings = runs.settings("run");
  settings.steps = 9;
  settings.checkpoint_every = 3;
  const FinishedRun whole = finish(settings);
  settings.resume = true;
  const std::string folder = settings.out + "/checkpoints/step-00000009/";
  const auto refused_for = [&](const std::string& what) {
    const std::string message = test::error_of<Error>([&] { finish(settings); });
    EXPECT_NE(message.find(what), std::string::npos) << what << " is not in: " << message;
    EXPECT_NE(message.find("the newest intact one is that of step 6 ("), std::string::npos) << message;
    EXPECT_TRUE(message.ends_with("go on from it with --resume --resume-step 6")) << message;
  };
  const auto change = [&](const std::string& name, const auto& changed) {
    const std::string good = test::content_of(folder + name);
    test::put_file(folder + name, changed(good));
    return good;
  };
  const auto last_bit = [](std::string content) {
    content.back() = static_cast<char>(content.back() ^ 1);
    return content;
  };
  for (const std::string name : {"model.safetensors", "optimizer.safetensors", "low_path.safetensors"}) {
    const std::string good = change(name, last_bit);
    refused_for(folder + name + ": tensor \"");
    test::put_file(folder + name, good);
  }
  // An older program wrote no checksums: what its owner refuses is named all the same.
  std::filesystem::remove(folder + "checksums.json");
  change("trainer.json", [](std::string content) {
    return content.replace(content.find("  \"checksums\""),
                           std::string("  \"checksums\": \"checksums.json\",\n").size(), "");
  });
  const models::TensorFile memory = models::read_safetensors(folder + "low_path.safetensors");
  models::NamedTensors negative;
  for (const auto& [name, tensor] : memory.tensors) {
    negative.emplace_back(name, name == "layers.0.q.forward.input.scale" ? -tensor : tensor.clone());
  }
  const std::string low_path = test::content_of(folder + "low_path.safetensors");
  models::write_safetensors(folder + "low_path.safetensors", negative);
  refused_for("step-00000009: this checkpoint cannot be used: low_path.safetensors: amax history: layers.0.q");
  test::put_file(folder + "low_path.safetensors", low_path);
  const std::string trainer = change("trainer.json", [](std::string content) {
    const std::string key = "\"skipped_updates\": \"";
    return content.replace(content.find(key) + key.size(), 1, "x");
  });
  refused_for("trainer.json: skipped_updates is no whole number");
  test::put_file(folder + "trainer.json", trainer);
  const std::string optimizer = change(
      "optimizer.safetensors", [](std::string content) { return content.replace(content.find("exp_avg"), 3, "EXP"); });
  refused_for("optimizer.safetensors: [optimizer] the state has no `");
  test::put_file(folder + "optimizer.safetensors", optimizer);
  change("controller.gnmr", last_bit);
  refused_for("controller.gnmr: ");
  settings.resume_step = 6;
  const FinishedRun again = finish(settings);
  EXPECT_EQ(again.recorder.start.first_step, 7);
  EXPECT_TRUE(same_weights(whole.weights, again.weights));
  settings.resume_step = 0;
  EXPECT_NO_THROW(finish(settings)) << "the damaged one was replaced";
}

TEST(Trainer, SaysWhatIsWrongWithItsSettings) {
  const SmallRuns runs;
  const auto message = [&](auto change) {
    run::TrainSettings settings = runs.settings("never");
    change(settings);
    return test::error_of<Error>([&] { finish(settings); });
  };
  EXPECT_NE(message([](auto& s) { s.sequence = 65; }).find("64 positions"), std::string::npos);
  EXPECT_NE(message([](auto& s) { s.set = {"layer.*=high"}; }).find("no unit is named like layer.*"),
            std::string::npos);
  EXPECT_NE(message([](auto& s) { s.deny = {"*"}; }).find("--allow and --deny"), std::string::npos);
  EXPECT_NE(message([](auto& s) { s.recipe = "fp9"; }).find("fp8-delayed"), std::string::npos);
  EXPECT_NE(message([](auto& s) { s.controller = "both"; }).find("controller"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(runs.file("never"))) << "no folder is left behind";
}

}  // namespace
}  // namespace gnmr::train
