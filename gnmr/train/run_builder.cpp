// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/run_builder.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/core/message_text.h"
#include "gnmr/recipes/recipe.h"
#include "gnmr/run/build_commit.h"
#include "gnmr/run/random_units.h"
#include "gnmr/train/memory_need.h"
#include "gnmr/train/rank_agreement.h"

namespace gnmr::train {
namespace {

run::TrainSettings with_defaults(run::TrainSettings settings) {
  run::validate(settings);
  if (settings.out.empty()) settings.out = run::default_run_folder(settings);
  if (settings.allow.empty()) settings.allow = {"*"};
  if (settings.deny.empty()) settings.deny = {"head"};
  return settings;
}

nn::Granularity granularity_of(const std::string& name) {
  if (name == "product") return nn::Granularity::product;
  return name == "block" ? nn::Granularity::block : nn::Granularity::layer;
}

at::Device device_of(const std::string& name) {
  if (name == "cpu") return at::kCPU;
  if (!at::hasCUDA()) throw Error("--device cuda: this torch has no CUDA, or there is no GPU; use --device cpu");
  return at::Device(at::kCUDA, 0);
}

/// Units that the user switches: those of the switchboard, and those that are always high.
std::vector<run::SwitchRule> rules_of(const run::TrainSettings& settings) {
  std::vector<run::SwitchRule> rules;
  for (const std::string& glob : settings.always_high) rules.push_back({.glob = glob, .path = run::Path::high});
  for (const run::SwitchRule& rule : run::parse_switch_rules(settings.set)) rules.push_back(rule);
  return rules;
}

/// A rule that names no unit is a mistake in writing.
void check_rules(const std::vector<run::SwitchRule>& rules, const std::vector<Unit>& units) {
  for (const run::SwitchRule& rule : rules) {
    const bool used = std::any_of(units.begin(), units.end(),
                                  [&](const Unit& unit) { return rule.applies(unit.name, rule.first_step); });
    if (!used) {
      throw Error("no unit is named like " + rule.glob + "; the first unit is " +
                  (units.empty() ? std::string("none") : units.front().name));
    }
  }
}

DataSettings data_settings(const run::TrainSettings& settings, std::int64_t vocabulary, nn::Collective& ranks) {
  return {.files = settings.data,
          .held_out = settings.held_out,
          .seed = settings.seed,
          .batch = settings.batch,
          .sequence = settings.sequence,
          .accumulate = settings.accumulate,
          .vocabulary = vocabulary,
          .rank = ranks.rank(),
          .world = ranks.size()};
}

std::string mebibytes(std::int64_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

bool is_by_evidence(Selector selector) {
  return selector == Selector::evidence || selector == Selector::evidence_after_alarm;
}

}  // namespace

void RunBuilder::build() {
  parts_.settings = with_defaults(std::move(parts_.settings));
  const run::TrainSettings& settings = parts_.settings;
  at::set_num_threads(settings.threads > 0 ? static_cast<int>(settings.threads)
                                           : static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  open_model();
  open_units();
  open_experiment();
  parts_.runner.emplace(*parts_.model, *parts_.data, *parts_.units, parts_.ranks, parts_.experiment.get());
  open_folder();
  try {
    start(settings.resume ? restore_checkpoint(parts_) : RestoredControl{});
  } catch (...) {
    parts_.writer->undo_start();
    throw;
  }
}

void RunBuilder::open_model() {
  const run::TrainSettings& settings = parts_.settings;
  const ModelPlan model = makers_.plan_model(settings, device_of(settings.device));
  const DataSettings data = data_settings(settings, model.vocabulary, parts_.ranks);
  if (model.vocabulary > 0 && !settings.then_data.empty()) {
    parts_.data = std::make_unique<ChangingData>(data, data_after_change(data, settings.then_data), settings.then_at);
  } else if (model.vocabulary > 0) {
    parts_.data = std::make_unique<Data>(data);
  } else {
    parts_.data = std::make_unique<SampleNumbers>(data);
  }
  parts_.model = model.make();
  parts_.optimizer.emplace(
      optimized_parameters(*parts_.model),
      AdamWSettings{.beta1 = settings.beta1, .beta2 = settings.beta2, .weight_decay = settings.weight_decay});
}

void RunBuilder::open_units() {
  const run::TrainSettings& settings = parts_.settings;
  const std::vector<run::SwitchRule> rules = rules_of(settings);
  nn::UnitSelection selection{.granularity = granularity_of(settings.granularity),
                              .allow = settings.allow,
                              .deny = settings.deny,
                              .save_in_8_bits = settings.save_activations == "fp8",
                              .recast_weights = settings.recast_weights};
  for (const run::SwitchRule& rule : rules) selection.forced.push_back(rule.glob);
  std::shared_ptr<const nn::Recipe> recipe;
  if (parts_.has_low_path()) recipe = std::make_shared<const nn::Recipe>(recipes::load_recipe(settings.recipe));
  // Ranks round different sequences by chance: not by the same one.
  const auto seed = static_cast<std::uint64_t>(settings.seed) + (static_cast<std::uint64_t>(parts_.ranks.rank()) << 32);
  nn::RecoverableUnits& units = parts_.units.emplace(*parts_.model, recipe, selection, seed);
  units.measure_casts(settings.evidence || settings.evidence_from == "casts");
  check_rules(rules, units.units());
  if (units.layer_names().empty()) {
    throw Error("no linear layer is left for the low path: look at --allow and --deny");
  }
  if (uses_errors()) units.patrol(settings.patrol, settings.batch * settings.sequence);
}

void RunBuilder::open_experiment() {
  const run::TrainSettings& settings = parts_.settings;
  if (makers_.make_experiment) parts_.experiment = makers_.make_experiment(settings, parts_.units->layer_names());
  if (settings.evidence_from == "casts" && settings.controller == "gnmr" && parts_.ranks.size() > 1) {
    throw Error("--evidence-from casts: what casts did is not summed over processes; use --evidence-from patrol");
  }
  if (parts_.experiment == nullptr && settings.experiment.is_wanted()) {
    throw Error("faults, rivals and oracles need an engine with a laboratory");
  }
  if (parts_.experiment != nullptr) parts_.units->set_hook(parts_.experiment->hook());
}

void RunBuilder::open_folder() {
  run::TrainSettings& settings = parts_.settings;
  RunWriter& writer = parts_.writer.emplace(settings, parts_.observer, parts_.ranks.rank() == 0);
  if (!settings.resume) return;
  settings.resume = any_rank(parts_.ranks, writer.found_run());
  const std::string& folder = writer.folder().path();
  if (settings.resume) {
    writer.continue_run();
  } else if (settings.resume_step > 0) {
    throw Error(folder + ": there is no run to resume, and so no step " + std::to_string(settings.resume_step) +
                "; look at --out");
  } else {
    parts_.observer.noted(folder + ": there is no run to resume; it starts with step 1");
  }
}

void RunBuilder::start(const RestoredControl& restored) {
  RunWriter& writer = *parts_.writer;
  writer.begin(run_info());
  start_supervisor(restored);
  BatchSettings batches = batch_settings();
  if (parts_.supervisor->has_gate()) {
    batches.gate_on_device = parts_.optimizer->has_kernels() && parts_.ranks.size() == 1;
    parts_.gate = make_gate(batches.gate_on_device);
  }
  parts_.runner->set(batches);
  parts_.kill_switch.emplace(writer.folder().control(), parts_.observer, parts_.ranks);
  writer.open({.units = parts_.units->units(),
               .first_step = parts_.next_step,
               .norms = parts_.settings.norms && parts_.has_controller(),
               .errors = parts_.settings.errors && uses_errors()});
  if (parts_.experiment != nullptr && writer.writes()) {
    parts_.experiment->open_files(writer.folder(), writer.existing());
  }
  parts_.log.emplace(writer, parts_.observer, *parts_.supervisor, *parts_.runner, parts_.outcome);
  parts_.supervisor->add_listener(*parts_.log);
}

void RunBuilder::start_supervisor(const RestoredControl& restored) {
  const RunWriter& writer = *parts_.writer;
  run::SupervisorFiles files{.existing = writer.existing(), .next_step = parts_.next_step};
  if (writer.writes() && parts_.has_controller()) {
    files.journal = writer.folder().journal();
    files.signals = writer.folder().signals();
    if (uses_errors()) files.errors = writer.folder().errors();
    files.signals_every = parts_.settings.signals_every;
  }
  run::Supervisor& supervisor = parts_.supervisor.emplace(parts_.units->units(), supervision(), files);
  if (!parts_.settings.random_units.empty()) {
    supervisor.note("random units are switched; the controller's decisions are only written");
  }
  if (!restored.state.empty()) {
    RestoreReport report;
    writer.checkpoints().restoring(parts_.next_step - 1, kControllerFile,
                                   [&] { report = supervisor.restore(restored.state); });
    for (const std::string& unit : report.released_units) {
      parts_.observer.noted(unit + ": its recovery no longer fits and ends");
    }
  }
  if (restored.mode) supervisor.set_mode(*restored.mode, "as before the run stopped");
}

run::SupervisorSettings RunBuilder::supervision() const {
  const run::TrainSettings& settings = parts_.settings;
  run::SupervisorSettings supervision{
      .options = options_in_force(),
      .switches = parts_.switches_units(),
      .watch_steps = settings.watch_steps,
      .rules = rules_of(settings),
      .backend = {.can_rerun = true, .sites = nn::kProductCount, .expected_errors = parts_.units->expected_errors()},
      .disarm_after = settings.disarm_after};
  for (std::size_t product = 0; product < nn::kProductCount; ++product) {
    supervision.sites.emplace_back(to_string(static_cast<nn::Product>(product)));
  }
  const RunParts& parts = parts_;
  if (parts.experiment != nullptr && parts.experiment->chooses_units()) {
    supervision.choose = [&parts](std::int64_t step) {
      const Controller& controller = parts.supervisor->controller();
      const ChoiceLimits limits{.lock_steps = controller.options().lock_steps, .most = controller.max_recovered()};
      return parts.experiment->chosen_units(step, limits, controller.units());
    };
  } else if (!settings.random_units.empty()) {
    const run::RandomUnits choice{.share = std::stod(settings.random_units.front()),
                                  .lock_steps = settings.options.lock_steps,
                                  .seed = static_cast<std::uint64_t>(settings.seed)};
    supervision.choose = [&parts, choice](std::int64_t step) {
      return run::random_recoveries(parts.units->units(), choice, step);
    };
  }
  return supervision;
}

BatchSettings RunBuilder::batch_settings() const {
  const run::TrainSettings& settings = parts_.settings;
  BatchSettings batches{.accumulate = settings.accumulate,
                        .graphs = settings.graphs,
                        .eval_batches = settings.eval_batches,
                        .largest_norm = settings.clip,
                        .norms = parts_.has_controller(),
                        .casts = settings.evidence,
                        .judges_errors = judges_errors()};
  const bool by_casts = settings.evidence_from == "casts" && is_by_evidence(parts_.supervisor->controller().selector());
  if (uses_errors()) batches.errors = by_casts ? ErrorMeasure::casts : ErrorMeasure::comparison;
  return batches;
}

/// The gate of a run with lag 1.
std::unique_ptr<StepGate> RunBuilder::make_gate(bool on_device) const {
  const Controller& controller = parts_.supervisor->controller();
  std::unique_ptr<StepGate> gate;
  if (on_device) {
    gate = make_device_gate({.optimizer = *parts_.optimizer,
                             .units = *parts_.units,
                             .options = controller.options(),
                             .selector = controller.selector(),
                             .largest_norm = parts_.settings.clip});
  } else {
    gate = make_host_gate(*parts_.optimizer, controller);
  }
  gate->load(controller);
  return gate;
}

run::RunInfo RunBuilder::run_info() const {
  const run::TrainSettings& settings = parts_.settings;
  const std::string faults = parts_.experiment != nullptr ? parts_.experiment->fault_kinds() : "";
  return {.label = settings.label,
          .program = "gnmr",
          .model = settings.model,
          .parameters = parts_.model->parameter_count(),
          .recipe = parts_.has_low_path() ? recipes::load_recipe(settings.recipe).name : "none",
          .controller = run::controller_name(settings),
          .preset = {},
          .batch_tokens = parts_.step_tokens(),
          .units = static_cast<std::int64_t>(parts_.units->units().size()),
          .budget = Controller(parts_.units->units(), settings.options, norms_only()).max_recovered(),
          .data = parts_.data->fingerprint(),
          .faults = faults.empty() ? "" : faults + ", injected",
          .started = io::utc_text(std::chrono::system_clock::now()),
          .commit = run::build_commit(),
          .torch = TORCH_VERSION,
          .threads = at::get_num_threads(),
          .settings = settings};
}

/// Where there is no low path there is nothing to compare or to run again.
Options RunBuilder::options_in_force() const {
  Options options = parts_.settings.options;
  if (!parts_.has_low_path()) options.selector = Selector::norms;
  // Where nothing is judged nothing is late.
  if (!parts_.has_controller()) options.lag = 0;
  return options;
}

/// Whether a decision goes by how far low paths are off: that of the selector, or which recoveries stand.
bool RunBuilder::judges_errors() const {
  if (!parts_.has_low_path() || !parts_.has_controller()) return false;
  const Options& options = parts_.settings.options;
  return options.selector != Selector::norms || (options.coarse_error > 0 && parts_.settings.patrol > 0);
}

/// Whether anybody asks for it, be it for the log.
bool RunBuilder::uses_errors() const {
  return judges_errors() || (parts_.settings.errors && parts_.has_low_path() && parts_.has_controller());
}

namespace {

/// What is compared beside a step and what a trial needs, in words.
std::string control_text(const RunParts& parts) {
  if (!parts.runner->measures_errors()) return {};
  std::string text = "patrol: " + parts.units->patrol_text();
  if (parts.supervisor->controller().selector() != Selector::trial) return text;
  const std::int64_t needed = parts.units->trial_bytes(parts.settings.batch * parts.settings.sequence);
  text += "; a trial needs up to " + mebibytes(needed) + " beyond a step";
  const at::Device device = device_of(parts.settings.device);
  const std::int64_t free = device.is_cpu() ? free_host_bytes() : free_device_bytes(device);
  if (free > 0) text += ", " + mebibytes(free) + " are free";
  if (free > 0 && needed > free) text += " (WARNING: it may not fit; smaller --batch, or --selector norms)";
  return text;
}

}  // namespace

run::TrainStart start_of(const RunParts& parts) {
  return {.info = parts.writer->info(),
          .folder = parts.writer->folder().path(),
          .data = parts.data->description(),
          .coverage = parts.units->coverage().text(),
          .control = control_text(parts),
          .engine = std::string("torch ") + TORCH_VERSION + ", " + parts.settings.device + ", " +
                    counted(static_cast<std::uint64_t>(at::get_num_threads()), "thread"),
          .first_step = parts.next_step,
          .injected_faults = parts.experiment != nullptr ? parts.experiment->fault_count() : 0};
}

}  // namespace gnmr::train
