// SPDX-License-Identifier: Apache-2.0
// How a run begins, or is resumed: data, model, units, folder, supervisor.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/core/message_text.h"
#include "gnmr/io/number_text.h"
#include "gnmr/models/llama.h"
#include "gnmr/models/model_files.h"
#include "gnmr/train/checkpoint.h"
#include "gnmr/train/memory_need.h"
#include "gnmr/train/rank_agreement.h"
#include "gnmr/train/schedule.h"
#include "gnmr/train/trainer.h"

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

/// The configuration of a model that fits.
models::LlamaConfig checked_config(const run::TrainSettings& settings, const at::Device& device) {
  const models::LlamaConfig config = models::load_config(settings.model);
  if (settings.sequence > config.max_positions) {
    throw Error("--sequence " + std::to_string(settings.sequence) + ": the model has " +
                std::to_string(config.max_positions) + " positions");
  }
  const double tokens = static_cast<double>(settings.batch) * static_cast<double>(settings.sequence);
  check_memory(settings.model, memory_need(config, tokens), device);
  return config;
}

std::shared_ptr<models::LanguageModel> make_llama(const models::LlamaConfig& config, const run::TrainSettings& settings,
                                                  const at::Device& device) {
  models::Llama model(config);
  model->initialise(static_cast<std::uint64_t>(settings.seed));
  if (!settings.init.empty()) model->assign(read_initial_model(settings.init), settings.init);
  if (settings.outliers > 1) model->add_outliers(settings.outliers);
  model->to(device);
  if (settings.dtype == "bfloat16") model->to(at::kBFloat16);
  model->set_recompute(settings.recompute);
  model->set_graphs(settings.graphs);
  return model.ptr();
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

Trainer::Trainer(const run::TrainSettings& settings, run::TrainObserver& observer, nn::Collective& ranks,
                 const MakeExperiment& make_experiment)
    : settings_(with_defaults(settings)), observer_(observer), ranks_(ranks) {
  at::set_num_threads(settings_.threads > 0 ? static_cast<int>(settings_.threads)
                                            : static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  open_model();
  open_units();
  if (make_experiment) experiment_ = make_experiment(settings_, units_->layer_names());
  if (settings_.evidence_from == "casts" && settings_.controller == "gnmr" && ranks_.size() > 1) {
    throw Error("--evidence-from casts: what casts did is not summed over processes; use --evidence-from patrol");
  }
  if (experiment_ == nullptr && settings_.experiment.is_wanted()) {
    throw Error("faults, rivals and oracles need an engine with a laboratory");
  }
  if (experiment_ != nullptr) units_->set_hook(experiment_->hook());
  runner_.emplace(*model_, *data_, *units_, ranks_, experiment_.get());
  open_folder();
  try {
    start(settings_.resume ? resume() : Restored{});
  } catch (...) {
    writer_->undo_start();
    throw;
  }
}

void Trainer::open_model() {
  const at::Device device = device_of(settings_.device);
  const models::LlamaConfig config = checked_config(settings_, device);
  data_.emplace(data_settings(settings_, config.vocabulary, ranks_));
  model_ = make_llama(config, settings_, device);
  optimizer_.emplace(
      optimized_parameters(*model_),
      AdamWSettings{.beta1 = settings_.beta1, .beta2 = settings_.beta2, .weight_decay = settings_.weight_decay});
}

void Trainer::open_units() {
  const std::vector<run::SwitchRule> rules = rules_of(settings_);
  nn::UnitSelection selection{.granularity = granularity_of(settings_.granularity),
                              .allow = settings_.allow,
                              .deny = settings_.deny,
                              .save_in_8_bits = settings_.save_activations == "fp8",
                              .recast_weights = settings_.recast_weights};
  for (const run::SwitchRule& rule : rules) selection.forced.push_back(rule.glob);
  std::shared_ptr<const nn::Recipe> recipe;
  if (has_low_path()) recipe = std::make_shared<const nn::Recipe>(recipes::load_recipe(settings_.recipe));
  // Ranks round different sequences by chance: not by the same one.
  const auto seed = static_cast<std::uint64_t>(settings_.seed) + (static_cast<std::uint64_t>(ranks_.rank()) << 32);
  units_.emplace(*model_, recipe, selection, seed);
  units_->measure_casts(settings_.evidence || settings_.evidence_from == "casts");
  check_rules(rules, units_->units());
  if (units_->layer_names().empty()) {
    throw Error("no linear layer is left for the low path: look at --allow and --deny");
  }
  if (uses_errors()) units_->patrol(settings_.patrol, settings_.batch * settings_.sequence);
}

void Trainer::open_folder() {
  writer_.emplace(settings_, observer_, ranks_.rank() == 0);
  if (!settings_.resume) return;
  settings_.resume = any_rank(ranks_, writer_->found_run());
  const std::string& folder = writer_->folder().path();
  if (settings_.resume) {
    writer_->continue_run();
  } else if (settings_.resume_step > 0) {
    throw Error(folder + ": there is no run to resume, and so no step " + std::to_string(settings_.resume_step) +
                "; look at --out");
  } else {
    observer_.noted(folder + ": there is no run to resume; it starts with step 1");
  }
}

/// Takes over the newest checkpoint, or that of the step that was asked for.
Trainer::Restored Trainer::resume() {
  const CheckpointStore store = writer_->checkpoints();
  if (writer_->writes()) store.remove_leftovers();
  if (writer_->writes() && settings_.resume_step > 0) store.set_damaged_aside(settings_.resume_step);
  const std::int64_t step = settings_.resume_step > 0 ? settings_.resume_step : store.find_latest();
  if (step == 0) {
    observer_.noted("there is no checkpoint yet: the run begins again");
    return {};
  }
  LoadedCheckpoint loaded = store.load(step);
  if (loaded.info.data != data_->fingerprint()) {
    throw Error(loaded.folder + ": the data is not what the run was begun with; give the same files with --data");
  }
  const std::map<std::string, std::string>& extra = loaded.info.extra;
  for (const auto& [key, value] : arithmetic()) {
    const auto before = extra.find(key);
    if (before != extra.end() && before->second != value) {
      throw Error(loaded.folder + ": the run was begun with another " + key +
                  " (a file or the number of processes has changed since); begin another run with another --out");
    }
  }
  model_->assign(loaded.model, loaded.folder);
  store.restoring(step, kOptimizerFile, [&] { optimizer_->load_state(loaded.optimizer); });
  store.restoring(step, kLowPathFile, [&] { units_->restore_memory(loaded.low_path); });
  Restored restored{.controller = std::move(loaded.controller)};
  store.restoring(step, kTrainerFile, [&] { restored.mode = restore_extra(extra); });
  next_step_ = step + 1;
  outcome_.last_step = step;
  return restored;
}

/// What `save_checkpoint` put beside the parts of a checkpoint; the mode that was in force, if it is among them.
std::optional<Mode> Trainer::restore_extra(const std::map<std::string, std::string>& extra) {
  const auto skipped = extra.find(kSkippedKey);
  if (skipped != extra.end() && !io::parse_whole(skipped->second, outcome_.skipped_updates)) {
    throw Error(std::string(kSkippedKey) + " is no whole number");
  }
  if (experiment_ != nullptr) experiment_->restore(extra);
  const auto held = extra.find(kHeldKey);
  if (held != extra.end()) held_.restore(held->second, units_->parameters().size());
  const auto mode = extra.find(kModeKey);
  return mode != extra.end() ? io::mode_kind(mode->second) : std::nullopt;
}

void Trainer::start(const Restored& restored) {
  writer_->begin(run_info());
  start_supervisor(restored);
  BatchSettings batches = batch_settings();
  if (supervisor_->has_gate()) {
    batches.gate_on_device = optimizer_->has_kernels() && ranks_.size() == 1;
    gate_ = make_gate(batches.gate_on_device);
  }
  runner_->set(batches);
  kill_switch_.emplace(writer_->folder().control(), observer_, ranks_);
  writer_->open({.units = units_->units(),
                 .first_step = next_step_,
                 .norms = settings_.norms && settings_.controller != "none",
                 .errors = settings_.errors && uses_errors()});
  if (experiment_ != nullptr && writer_->writes()) experiment_->open_files(writer_->folder(), writer_->existing());
}

void Trainer::start_supervisor(const Restored& restored) {
  run::SupervisorFiles files{.existing = writer_->existing(), .next_step = next_step_};
  if (writer_->writes() && settings_.controller != "none") {
    files.journal = writer_->folder().journal();
    files.signals = writer_->folder().signals();
    files.signals_every = settings_.signals_every;
  }
  supervisor_.emplace(units_->units(), supervision(), files);
  if (!restored.controller.empty()) {
    RestoreReport report;
    writer_->checkpoints().restoring(next_step_ - 1, kControllerFile,
                                     [&] { report = supervisor_->restore(restored.controller); });
    for (const std::string& unit : report.released_units) {
      observer_.noted(unit + ": its recovery no longer fits and ends");
    }
  }
  if (restored.mode) supervisor_->set_mode(*restored.mode, "as before the run stopped");
}

run::SupervisorSettings Trainer::supervision() const {
  run::SupervisorSettings settings{
      .options = options_in_force(),
      .switches = switches_units(),
      .watch_steps = settings_.watch_steps,
      .rules = rules_of(settings_),
      .seed = static_cast<std::uint64_t>(settings_.seed),
      .backend = {.can_rerun = true, .sites = nn::kProductCount, .expected_errors = units_->expected_errors()},
      .disarm_after = settings_.disarm_after};
  for (std::size_t product = 0; product < nn::kProductCount; ++product) {
    settings.sites.emplace_back(to_string(static_cast<nn::Product>(product)));
  }
  if (!settings_.random_units.empty()) settings.random_share = std::stod(settings_.random_units.front());
  if (experiment_ == nullptr || !experiment_->chooses_units()) return settings;
  settings.chosen = [this](std::int64_t step) {
    const Controller& controller = supervisor_->controller();
    return experiment_->chosen_units(
        step, {.lock_steps = controller.options().lock_steps, .most = controller.max_recovered()}, controller.units());
  };
  return settings;
}

BatchSettings Trainer::batch_settings() const {
  BatchSettings settings{.accumulate = settings_.accumulate,
                         .graphs = settings_.graphs,
                         .eval_batches = settings_.eval_batches,
                         .largest_norm = settings_.clip,
                         .norms = settings_.controller != "none",
                         .casts = settings_.evidence};
  const bool by_casts = settings_.evidence_from == "casts" && is_by_evidence(supervisor_->controller().selector());
  if (uses_errors()) settings.errors = by_casts ? ErrorMeasure::casts : ErrorMeasure::comparison;
  return settings;
}

/// The gate of a run with lag 1.
std::unique_ptr<StepGate> Trainer::make_gate(bool on_device) {
  const Options& options = supervisor_->controller().options();
  const Selector selector = supervisor_->controller().selector();
  std::unique_ptr<StepGate> gate;
  if (on_device) {
    gate = make_device_gate({.optimizer = *optimizer_,
                             .units = *units_,
                             .options = options,
                             .selector = selector,
                             .largest_norm = settings_.clip});
  } else {
    gate = make_host_gate({.optimizer = *optimizer_,
                           .options = options,
                           .selector = selector,
                           .units = static_cast<std::uint32_t>(units_->units().size())});
  }
  gate->load(supervisor_->controller().save());
  return gate;
}

run::RunInfo Trainer::run_info() const {
  const std::string faults = experiment_ != nullptr ? experiment_->fault_kinds() : "";
  return {.label = settings_.label,
          .program = "gnmr",
          .model = settings_.model,
          .parameters = model_->parameter_count(),
          .recipe = has_low_path() ? recipes::load_recipe(settings_.recipe).name : "none",
          .controller = run::controller_name(settings_),
          .preset = {},
          .batch_tokens = settings_.batch * settings_.sequence * settings_.accumulate * ranks_.size(),
          .units = static_cast<std::int64_t>(units_->units().size()),
          .budget = Controller(units_->units(), settings_.options, norms_only()).max_recovered(),
          .data = data_->fingerprint(),
          .faults = faults.empty() ? "" : faults + ", injected",
          .started = io::utc_text(std::chrono::system_clock::now()),
          .settings = settings_};
}

/// What shapes the arithmetic of a run beyond the words of its settings: the content of files, the number of ranks.
std::map<std::string, std::string> Trainer::arithmetic() const {
  return {{kModelKey, model_->config_text()},
          {kRecipeKey, has_low_path() ? recipes::recipe_text(settings_.recipe) : "none"},
          {kTokensKey, std::to_string(settings_.batch * settings_.sequence * settings_.accumulate * ranks_.size())}};
}

/// Where there is no low path there is nothing to compare or to run again.
Options Trainer::options_in_force() const {
  Options options = settings_.options;
  if (!has_low_path()) options.selector = Selector::norms;
  // Where nothing is judged nothing is late.
  if (settings_.controller == "none") options.lag = 0;
  return options;
}

/// Whether anybody asks how far low paths are off.
bool Trainer::uses_errors() const {
  if (!has_low_path() || settings_.controller == "none") return false;
  return settings_.options.selector != Selector::norms || settings_.errors;
}

/// Whether anybody's choice of units is carried out.
bool Trainer::switches_units() const {
  return settings_.controller == "gnmr" || !settings_.random_units.empty() ||
         (experiment_ != nullptr && experiment_->chooses_units());
}

double Trainer::rate_of(std::int64_t step) const {
  const Schedule schedule{settings_.lr, settings_.min_lr, settings_.warmup, settings_.steps};
  return learning_rate(schedule, step);
}

/// What is compared beside a step and what a trial needs, in words.
std::string Trainer::control_text() const {
  if (!uses_errors()) return {};
  std::string text = "patrol: " + units_->patrol_text();
  if (supervisor_->controller().selector() != Selector::trial) return text;
  const std::int64_t needed = units_->trial_bytes(settings_.batch * settings_.sequence);
  text += "; a trial needs up to " + mebibytes(needed) + " beyond a step";
  const at::Device device = device_of(settings_.device);
  const std::int64_t free = device.is_cpu() ? free_host_bytes() : free_device_bytes(device);
  if (free > 0) text += ", " + mebibytes(free) + " are free";
  if (free > 0 && needed > free) text += " (WARNING: it may not fit; smaller --batch, or --selector norms)";
  return text;
}

void Trainer::announce() {
  observer_.started({.info = writer_->info(),
                     .folder = writer_->folder().path(),
                     .data = data_->description(),
                     .coverage = units_->coverage().text(),
                     .control = control_text(),
                     .engine = std::string("torch ") + TORCH_VERSION + ", " + settings_.device + ", " +
                               counted(static_cast<std::uint64_t>(at::get_num_threads()), "thread"),
                     .first_step = next_step_,
                     .injected_faults = experiment_ != nullptr ? experiment_->fault_count() : 0});
}

}  // namespace gnmr::train
