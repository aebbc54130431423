// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/injection/injection_experiment.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/io/hex_text.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/lab/experiment_check.h"
#include "gnmr/lab/injection/fault_truth.h"
#include "gnmr/lab/injection/harm_measurement.h"
#include "gnmr/lab/injection/outlier_transplant.h"
#include "gnmr/run/random_stream.h"

namespace gnmr::lab {
namespace {

// Names of entries in checkpoints.
constexpr const char* kHookKey = "laboratory";
constexpr const char* kRuleKey = "gradient_rule";

std::vector<FaultChoice> choices_of(const std::vector<std::string>& names) {
  std::vector<FaultChoice> choices;
  for (const std::string& name : names) {
    const std::optional<FaultChoice> choice = parse_fault(name);
    if (!choice) throw Error("[faults] expected " + expected_fault() + ", got " + io::in_quotes(name));
    choices.push_back(*choice);
  }
  return choices;
}

FaultSettings plan_of(const run::TrainSettings& settings, std::size_t layer_count) {
  const ExperimentSettings& experiment = settings.experiment;
  return {.layer_count = static_cast<std::uint32_t>(layer_count),
          .kinds = choices_of(experiment.faults),
          .every = experiment.fault_every,
          .steps = experiment.fault_steps,
          .layers = experiment.fault_layers,
          .from = experiment.fault_from,
          .seed = experiment.fault_seed,
          .run_steps = settings.steps};
}

bool of_layer(const PlannedFault& fault) { return fault.layer != kNoLayer; }

}  // namespace

train::Batch random_batch(const train::Batch& batch, std::int64_t seed, std::int64_t step, std::int64_t micro_batch) {
  if (batch.tokens.numel() == 0) return batch;
  const std::int64_t rows = batch.tokens.size(0);
  const std::int64_t columns = batch.tokens.size(1);
  const auto kinds = static_cast<std::uint64_t>(
      1 + std::max(batch.tokens.max().item<std::int64_t>(), batch.targets.max().item<std::int64_t>()));
  run::RandomStream random(run::RandomPurpose::fault_details,
                           {seed, kNoLayer, step, micro_batch, batch.tokens.sum().item<std::int64_t>()});
  // One token more than a sequence has: a target is the token that follows.
  const at::Tensor drawn = at::empty({rows, columns + 1}, at::kLong);
  auto* const tokens = drawn.mutable_data_ptr<std::int64_t>();
  std::generate_n(tokens, drawn.numel(), [&] { return static_cast<std::int64_t>(random.below(kinds)); });
  const at::Tensor placed = drawn.to(batch.tokens.device());
  return {.tokens = placed.narrow(1, 0, columns).contiguous(), .targets = placed.narrow(1, 1, columns).contiguous()};
}

InjectionExperiment::InjectionExperiment(const run::TrainSettings& settings, std::vector<std::string> layer_names,
                                         std::unique_ptr<train::GradientRule> rule)
    : settings_(settings.experiment),
      run_steps_(settings.steps),
      layer_names_(std::move(layer_names)),
      faults_(plan_faults(plan_of(settings, layer_names_.size()))),
      hook_(faults_, {.strength = settings_.fault_strength, .seed = settings_.fault_seed}),
      rule_(std::move(rule)) {}

nn::LowPathHook* InjectionExperiment::hook() {
  return std::any_of(faults_.begin(), faults_.end(), of_layer) ? &hook_ : nullptr;
}

void InjectionExperiment::change_batch(std::int64_t batch, std::int64_t micro_batch, train::Batch& tokens) {
  const bool bad = std::any_of(faults_.begin(), faults_.end(), [&](const PlannedFault& fault) {
    return fault.kind == FaultKind::bad_batch && fault.covers(batch);
  });
  if (bad) tokens = random_batch(tokens, settings_.fault_seed, batch, micro_batch);
}

void InjectionExperiment::change_weights(std::span<const std::pair<std::string, at::Tensor>> tensors) {
  transplant_outliers(tensors, {.channels = settings_.transplant_channels, .factor = settings_.transplant_factor});
}

std::vector<UnitIndex> InjectionExperiment::chosen_units(std::int64_t step, const train::ChoiceLimits& limits,
                                                         std::span<const Unit> units) const {
  const std::vector<std::uint32_t> layers =
      oracle_layers(faults_, {.lock_steps = limits.lock_steps, .most = limits.most}, step);
  const auto is_named_as = [&](const Unit& unit) {
    return [&](std::uint32_t layer) { return layer_names_[layer] == unit.name; };
  };
  std::vector<UnitIndex> chosen;
  for (UnitIndex unit = 0; unit < units.size(); ++unit) {
    if (std::any_of(layers.begin(), layers.end(), is_named_as(units[unit]))) chosen.push_back(unit);
  }
  return chosen;
}

void InjectionExperiment::measure(std::int64_t batch, nn::RecoverableUnits& units,
                                  const std::function<void()>& run_batch) {
  if (!harm_) return;
  const std::string memory = hook_.save();
  const std::vector<LayerHarm> harm = measure_harm(units, faulty_layers(faults_, batch), hook(), run_batch);
  if (!harm.empty()) hook_.restore(memory);
  for (const LayerHarm& one : harm) {
    harm_->write({.step = batch, .layer = layer_names_[one.layer], .distance = one.distance});
  }
}

std::string InjectionExperiment::fault_kinds() const {
  std::string joined;
  for (const std::string& kind : settings_.faults) joined += (joined.empty() ? "" : "+") + kind;
  return joined;
}

std::string InjectionExperiment::truth_text() const {
  return faults_.empty() ? "" : lab::truth_text(layer_names_, faults_, run_steps_);
}

std::string InjectionExperiment::fault_list_text() const {
  return lab::fault_list_text(layer_names_, faults_, settings_.fault_strength);
}

void InjectionExperiment::open_files(const run::RunFolder& folder, io::ExistingFile existing) {
  if (faults_.empty()) return;
  io::replace_file(folder.faults(), truth_text());
  io::replace_file(folder.fault_list(), fault_list_text());
  if (settings_.harm) harm_.emplace(folder.harm(), existing);
}

void InjectionExperiment::flush(std::chrono::milliseconds longest) {
  if (harm_) harm_->flush(longest);
}

std::uint64_t InjectionExperiment::close_files() {
  if (!harm_) return 0;
  harm_->close();
  return harm_->dropped();
}

std::map<std::string, std::string> InjectionExperiment::save() const {
  std::map<std::string, std::string> entries{{kHookKey, hook_.save()}};
  if (rule_ != nullptr) entries[kRuleKey] = io::hex_text(rule_->save());
  return entries;
}

void InjectionExperiment::restore(const std::map<std::string, std::string>& entries) {
  const auto rule = entries.find(kRuleKey);
  if (rule != entries.end() && rule_ != nullptr) rule_->restore(io::bytes_of_hex(rule->second));
  const auto hook = entries.find(kHookKey);
  if (hook != entries.end()) hook_.restore(hook->second);
}

std::unique_ptr<InjectionExperiment> make_experiment(const run::TrainSettings& settings,
                                                     const std::vector<std::string>& layer_names,
                                                     std::unique_ptr<train::GradientRule> rule) {
  check_experiment(settings);
  if (!settings.experiment.is_wanted() && rule == nullptr) return nullptr;
  return std::make_unique<InjectionExperiment>(settings, layer_names, std::move(rule));
}

}  // namespace gnmr::lab
