// SPDX-License-Identifier: Apache-2.0
// Runs a batch and gives its numbers.
//
//   BatchNumbers numbers = runner.run({.batch = 12});  // forward and backward; the gradients stay with the parameters
//   runner.read(numbers);                              // waits for a device, where the numbers are on one
//
// A run is all micro-batches of a batch, the reduction over ranks, and the one pass over the gradients that gives every
// norm and the clip coefficient. Where a gate on a device makes that pass, the runner leaves it to the gate, and `read`
// fetches what came of it.
//
// Goals: one way for plain steps, trials, replays and late steps. Non-goals: deciding, updating, files.
// It belongs to the thread that trains. With several ranks all of them call the same members in the same order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gnmr/models/language_model.h"
#include "gnmr/torch/collective.h"
#include "gnmr/torch/gradient_squares.h"
#include "gnmr/torch/units.h"
#include "gnmr/train/batch_numbers.h"
#include "gnmr/train/data.h"
#include "gnmr/train/experiment.h"

namespace gnmr::train {

/// Where the errors of a run's low paths come from.
enum class ErrorMeasure : std::uint8_t {
  none,        // nobody asks
  comparison,  // low paths compared with high ones: patrol and trial
  casts,       // what casts did to operands
};

/// How batches run, and which numbers are asked for.
struct BatchSettings {
  std::int64_t accumulate = 1;  // micro-batches
  bool graphs = false;          // the model was asked for CUDA graphs
  std::int64_t eval_batches = 1;
  double largest_norm = 0;  // gradients are clipped at; 0: not
  bool norms = true;        // of units, and who is forced high
  bool casts = false;       // what casts did, for the log
  ErrorMeasure errors = ErrorMeasure::none;
  bool judges_errors = false;   // a decision goes by them
  bool gate_on_device = false;  // it makes the pass over the gradients
};

/// One run of a batch.
struct BatchRun {
  std::int64_t batch = 0;
  PassKind pass = PassKind::step;
  bool again = false;                             // the batch has run before
  bool measured = false;                          // an experiment may measure something beside it
  std::span<const UnitIndex> measured_high = {};  // units that run high and whose low paths are measured beside it
  formats::Refresh refresh = {};                  // of delayed scales, at the end of the step
};

/// Runs batches of one model.
class BatchRunner {
 public:
  /// All but the settings must outlive the runner; `experiment` may be null.
  BatchRunner(models::LanguageModel& model, const BatchSource& data, nn::RecoverableUnits& units, nn::Collective& ranks,
              Experiment* experiment);

  void set(const BatchSettings& settings) { settings_ = settings; }

  /// Whether low paths are compared with high ones, or their casts looked at.
  bool measures_errors() const { return settings_.errors != ErrorMeasure::none; }

  /// Forward and backward of a batch, each unit on the path that was requested. Gradients of an earlier run are
  /// dropped.
  BatchNumbers run(const BatchRun& run);

  /// Brings the numbers to the host, waiting for them.
  void read(BatchNumbers& numbers);

  /// Multiplies each parameter's gradient; 0 removes it, whatever it was. The numbers follow.
  void scale_gradients(std::span<const double> coefficients, BatchNumbers& numbers);

  /// Lets a rule change the gradients of a step, or skip its update.
  void follow(GradientRule& rule, std::int64_t step, BatchNumbers& numbers);

  void drop_gradients();

  /// Mean loss of the evaluation batches with the units on such a path.
  double evaluation_loss(nn::EvaluatedPath path);

  /// Seconds so far: of passes over gradients, and of switching and measuring units.
  double norm_seconds() const { return norm_seconds_; }
  double unit_seconds() const { return unit_seconds_; }

  /// Why parts of the model do not run as CUDA graphs, when that is news; empty: it is not.
  std::string graph_news();

 private:
  at::Tensor run_micro_batches(std::int64_t batch);
  at::Tensor on_device(const at::Tensor& tensor) const;
  void measure(BatchNumbers& numbers);
  void reduce_over_ranks(BatchNumbers& numbers, std::vector<double>& unit_squares, std::vector<double>& error_sums);
  void measure_gradients(BatchNumbers& numbers);

  models::LanguageModel& model_;
  const BatchSource& data_;
  nn::RecoverableUnits& units_;
  nn::Collective& ranks_;
  Experiment* experiment_;
  BatchSettings settings_;
  at::Device device_;
  nn::GradientSquares gradient_squares_;
  double norm_seconds_ = 0;
  double unit_seconds_ = 0;
  std::string known_graph_failure_;
};

}  // namespace gnmr::train
