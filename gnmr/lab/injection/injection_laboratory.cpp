// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/injection/injection_laboratory.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/io/json_text.h"
#include "gnmr/lab/injection/fault_truth.h"
#include "gnmr/run/random_stream.h"

namespace gnmr::lab {
namespace {

std::vector<run::FaultChoice> choices_of(const std::vector<std::string>& names) {
  std::vector<run::FaultChoice> choices;
  for (const std::string& name : names) {
    const std::optional<run::FaultChoice> choice = run::parse_fault(name);
    if (!choice) throw Error("[faults] expected " + run::expected_fault() + ", got " + io::in_quotes(name));
    choices.push_back(*choice);
  }
  return choices;
}

FaultSettings plan_of(const run::TrainSettings& settings, std::size_t layer_count) {
  return {.layer_count = static_cast<std::uint32_t>(layer_count),
          .kinds = choices_of(settings.faults),
          .every = settings.fault_every,
          .steps = settings.fault_steps,
          .from = settings.fault_from,
          .seed = settings.fault_seed,
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

InjectionLaboratory::InjectionLaboratory(const run::TrainSettings& settings, std::vector<std::string> layer_names,
                                         std::unique_ptr<train::GradientRule> rule)
    : layer_names_(std::move(layer_names)),
      faults_(plan_faults(plan_of(settings, layer_names_.size()))),
      hook_settings_{.strength = settings.fault_strength, .seed = settings.fault_seed},
      hook_(faults_, hook_settings_),
      run_steps_(settings.steps),
      rule_(std::move(rule)) {}

nn::LowPathHook* InjectionLaboratory::hook() {
  return std::any_of(faults_.begin(), faults_.end(), of_layer) ? &hook_ : nullptr;
}

void InjectionLaboratory::change_batch(std::int64_t step, std::int64_t micro_batch, train::Batch& batch) {
  const bool bad = std::any_of(faults_.begin(), faults_.end(), [&](const PlannedFault& fault) {
    return fault.kind == run::FaultKind::bad_batch && fault.covers(step);
  });
  if (bad) batch = random_batch(batch, hook_settings_.seed, step, micro_batch);
}

std::vector<std::uint32_t> InjectionLaboratory::faulty_layers(std::int64_t step) const {
  return lab::faulty_layers(faults_, step);
}

std::vector<std::uint32_t> InjectionLaboratory::oracle(std::int64_t step, std::int64_t lock_steps,
                                                       std::uint32_t most) const {
  return oracle_layers(faults_, {.lock_steps = lock_steps, .most = most}, step);
}

std::string InjectionLaboratory::truth_text() const {
  return faults_.empty() ? "" : lab::truth_text(layer_names_, faults_, run_steps_);
}

std::string InjectionLaboratory::fault_list_text() const {
  return lab::fault_list_text(layer_names_, faults_, hook_settings_.strength);
}

std::unique_ptr<train::Laboratory> make_laboratory(const run::TrainSettings& settings,
                                                   const std::vector<std::string>& layer_names,
                                                   std::unique_ptr<train::GradientRule> rule) {
  const bool wanted = !settings.faults.empty() || settings.oracle || settings.harm || rule != nullptr;
  if (!wanted) return nullptr;
  return std::make_unique<InjectionLaboratory>(settings, layer_names, std::move(rule));
}

}  // namespace gnmr::lab
