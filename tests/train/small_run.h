// SPDX-License-Identifier: Apache-2.0
// Training runs that take a fraction of a second, and what they leave behind.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gnmr/io/journal_reader.h"
#include "gnmr/lab/injection/injection_experiment.h"
#include "gnmr/models/llama_config.h"
#include "gnmr/models/model_files.h"
#include "gnmr/train/trainer.h"
#include "io/temporary_folder.h"

namespace gnmr::train::testing {

/// Writes down what a run tells; a test may look at the model after each step, stop the run, or switch its mode.
class Recorder : public run::TrainObserver {
 public:
  void started(const run::TrainStart& told) override { start = told; }
  void stepped(const run::TrainLine& line) override {
    lines.push_back(line);
    lines.back().seconds = 0;
    if (after_step) after_step(line);
  }
  void evaluated(const run::EvalLine& line) override { evals.push_back(line); }
  void noted(const std::string& text) override { notes.push_back(text); }
  bool stop_wanted() override {
    // With lag 1 the line of a step comes after it.
    ++steps_done;
    return stop_after > 0 && start.first_step + steps_done - 1 >= stop_after;
  }
  std::optional<Mode> mode_wanted() override {
    return wanted_mode ? wanted_mode(static_cast<std::int64_t>(lines.size()) + 1) : std::nullopt;
  }

  run::TrainStart start;
  std::vector<run::TrainLine> lines;
  std::vector<run::EvalLine> evals;
  std::vector<std::string> notes;
  std::int64_t stop_after = 0;
  std::int64_t steps_done = 0;
  std::function<void(const run::TrainLine&)> after_step;
  std::function<std::optional<Mode>(std::int64_t next_step)> wanted_mode;
};

/// Text with something to learn in it, the same everywhere.
inline std::string sample_text(std::size_t words) {
  const char* const vocabulary[] = {"alpha ", "beta", "gamma. ", "delta ", "the ", "of ", "epsilon", "\n", "zeta "};
  std::string text;
  std::uint64_t state = 12345;
  for (std::size_t word = 0; word < words; ++word) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    text += vocabulary[(state >> 33) % 9];
  }
  return text;
}

/// A folder with a small model and text, and settings that use them.
class SmallRuns {
 public:
  SmallRuns() {
    models::LlamaConfig config;
    config.hidden = 32;
    config.intermediate = 48;
    config.layers = 2;
    config.heads = config.key_value_heads = 2;
    config.head_dim = 16;
    config.max_positions = 64;
    test::put_file(folder_.file("config.json"), models::config_json(config));
    test::put_file(folder_.file("text.txt"), sample_text(6000));
  }

  run::TrainSettings settings(const std::string& name) const {
    run::TrainSettings settings;
    settings.model = folder_.file("config.json");
    settings.data = {folder_.file("text.txt")};
    settings.steps = 30;
    settings.batch = 4;
    settings.sequence = 24;
    settings.warmup = 4;
    settings.lr = 0.01;
    settings.threads = 1;
    settings.eval_every = 0;
    settings.eval_batches = 2;
    settings.checkpoint_every = 0;
    settings.out = folder_.file(name);
    return settings;
  }

  /// Faults, and a controller that is warm early enough to answer them.
  static void add_faults(run::TrainSettings& settings) {
    settings.experiment.faults = {"saturate", "overflow"};
    settings.experiment.fault_from = 8;
    settings.experiment.fault_every = 3;
    settings.experiment.fault_steps = 3;
    settings.options.warmup_samples = 4;
    settings.options.lock_steps = 3;
    settings.options.max_o = 3;
    settings.options.common_share = 1;
    settings.options.noise_factor = 2;
  }

  std::string file(const std::string& name) const { return folder_.file(name); }

 private:
  test::TemporaryFolder folder_;
};

/// What is left of a run.
struct FinishedRun {
  Recorder recorder;
  run::TrainOutcome outcome;
  std::vector<std::vector<UnitIndex>> high;
  std::vector<at::Tensor> weights;
};

/// Injected faults, as the engine has them.
inline std::unique_ptr<Experiment> injected_faults(const run::TrainSettings& settings,
                                                   const std::vector<std::string>& layer_names) {
  return lab::make_experiment(settings, layer_names);
}

inline FinishedRun finish(const run::TrainSettings& settings, Recorder recorder = {},
                          const MakeExperiment& experiment = injected_faults) {
  FinishedRun done{.recorder = std::move(recorder), .outcome = {}, .high = {}, .weights = {}};
  done.recorder.steps_done = 0;
  nn::Collective alone;
  Trainer trainer(settings, done.recorder, alone, {.plan_model = plan_llama, .make_experiment = experiment});
  done.outcome = trainer.run();
  done.high = trainer.recovered_by_step();
  for (const at::Tensor& parameter : trainer.model().parameters()) done.weights.push_back(parameter.detach().clone());
  return done;
}

/// The weights are the same bit for bit; NaN is like NaN.
inline bool same_weights(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t index = 0; index < a.size(); ++index) {
    if (!at::allclose(a[index], b[index], 0, 0, /*equal_nan=*/true)) return false;
  }
  return true;
}

/// How far apart they are, relative to their length.
inline double weight_distance(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double difference = 0;
  double length = 0;
  for (std::size_t index = 0; index < a.size(); ++index) {
    difference += (a[index] - b[index]).to(at::kDouble).square().sum().item<double>();
    length += b[index].to(at::kDouble).square().sum().item<double>();
  }
  return std::sqrt(difference / length);
}

/// Decisions of a journal as text, a line an event.
inline std::string decisions_of(const std::string& journal_path) {
  std::string text;
  for (const io::JournalStepEntry& entry : io::read_journal(journal_path).steps) {
    if (!entry.step) continue;
    text += std::to_string(entry.number) + ": " + std::to_string(entry.step->risks) + " risks, " +
            std::to_string(entry.step->recovered) + " recovered, loss " + std::to_string(entry.step->loss.value_or(0)) +
            "\n";
    for (const io::JournalEvent& event : entry.events) {
      text += std::to_string(event.step) + " " + event.unit + " " + std::string(io::to_string(event.event)) + " " +
              std::to_string(event.severity.value_or(0)) + "\n";
    }
  }
  return text;
}

}  // namespace gnmr::train::testing
