// SPDX-License-Identifier: Apache-2.0
// How a run begins, or goes on: folder, model, data, units, files.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/version.h>

#include <chrono>
#include <thread>

#include "gnmr/core/error.h"
#include "gnmr/core/message_text.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/models/model_files.h"
#include "gnmr/train/memory_need.h"
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

std::string words(const std::vector<std::string>& texts) {
  std::string joined;
  for (const std::string& text : texts) joined += (joined.empty() ? "" : "+") + text;
  return joined;
}

}  // namespace

Trainer::Trainer(const run::TrainSettings& settings, run::TrainObserver& observer, nn::Collective& collective,
                 const MakeLaboratory& make_laboratory)
    : settings_(with_defaults(settings)),
      observer_(observer),
      collective_(collective),
      folder_(settings_.out),
      device_(device_of(settings_.device)),
      schedule_{settings_.lr, settings_.min_lr, settings_.warmup, settings_.steps} {
  at::set_num_threads(settings_.threads > 0 ? static_cast<int>(settings_.threads)
                                            : static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  make_model();
  make_units();
  make_experiment(make_laboratory);
  open_folder();
  try {
    if (settings_.resume) resume();
    open_files();
  } catch (...) {
    // A start that came to nothing leaves nothing that the next one would take for a run.
    if (writes_files() && !settings_.resume) folder_.remove_start();
    throw;
  }
}

void Trainer::make_model() {
  const models::LlamaConfig config = models::load_config(settings_.model);
  if (settings_.sequence > config.max_positions) {
    throw Error("--sequence " + std::to_string(settings_.sequence) + ": the model has " +
                std::to_string(config.max_positions) + " positions");
  }
  check_memory(settings_.model,
               memory_need(config, static_cast<double>(settings_.batch) * static_cast<double>(settings_.sequence)),
               device_);
  data_.emplace(DataSettings{.files = settings_.data,
                             .held_out = settings_.held_out,
                             .seed = settings_.seed,
                             .batch = settings_.batch,
                             .sequence = settings_.sequence,
                             .accumulate = settings_.accumulate,
                             .vocabulary = config.vocabulary,
                             .rank = collective_.rank(),
                             .world = collective_.size()});
  model_ = models::Llama(config);
  model_->initialise(static_cast<std::uint64_t>(settings_.seed));
  if (!settings_.init.empty()) models::assign_weights(*model_, read_initial_model(settings_.init), settings_.init);
  if (settings_.outliers > 1) model_->add_outliers(settings_.outliers);
  model_->to(device_);
  if (settings_.dtype == "bfloat16") model_->to(at::kBFloat16);
  model_->set_recompute(settings_.recompute);
  model_->set_graphs(settings_.graphs);
  optimizer_.emplace(
      optimized_parameters(*model_),
      AdamWSettings{.beta1 = settings_.beta1, .beta2 = settings_.beta2, .weight_decay = settings_.weight_decay});
}

void Trainer::make_units() {
  if (settings_.recipe != "none") {
    recipe_ = std::make_shared<const nn::Recipe>(recipes::load_recipe(settings_.recipe));
  }
  const std::vector<run::SwitchRule> rules = rules_of(settings_);
  nn::UnitSelection selection{.granularity = granularity_of(settings_.granularity),
                              .allow = settings_.allow,
                              .deny = settings_.deny,
                              .save_in_8_bits = settings_.save_activations == "fp8",
                              .recast_weights = settings_.recast_weights};
  for (const run::SwitchRule& rule : rules) selection.forced.push_back(rule.glob);
  // Ranks round different sequences by chance: not by the same one.
  const auto seed = static_cast<std::uint64_t>(settings_.seed) + (static_cast<std::uint64_t>(collective_.rank()) << 32);
  units_.emplace(*model_, recipe_, selection, seed);
  units_->measure_casts(settings_.evidence || settings_.evidence_from == "casts");
  check_rules(rules, units_->units());
  layer_names_ = units_->layer_names();
  if (layer_names_.empty()) throw Error("no linear layer is left for the low path: look at --allow and --deny");
  if (uses_errors()) units_->patrol(settings_.patrol, settings_.batch * settings_.sequence);
}

/// Faults, rivals and the like, where the settings ask for them.
void Trainer::make_experiment(const MakeLaboratory& make_laboratory) {
  if (make_laboratory) laboratory_ = make_laboratory(settings_, layer_names_);
  const bool wanted = !settings_.faults.empty() || !settings_.rival.empty() || settings_.oracle || settings_.harm;
  if (settings_.evidence_from == "casts" && settings_.controller == "gnmr" && collective_.size() > 1) {
    throw Error("--evidence-from casts: what casts did is not summed over processes; use --evidence-from patrol");
  }
  if (laboratory_ == nullptr && wanted) throw Error("faults, rivals and oracles need an engine with a laboratory");
  if (laboratory_ != nullptr) units_->set_hook(laboratory_->hook());
}

/// The units that the oracle would have in recovery: those named as the faulty layers are.
std::vector<UnitIndex> Trainer::oracle_units(std::int64_t step) const {
  const Controller& controller = supervisor_->controller();
  std::vector<UnitIndex> units;
  for (const std::uint32_t layer :
       laboratory_->oracle(step, controller.options().lock_steps, controller.max_recovered())) {
    for (UnitIndex unit = 0; unit < controller.units().size(); ++unit) {
      if (controller.units()[unit].name == layer_names_[layer]) units.push_back(unit);
    }
  }
  std::sort(units.begin(), units.end());
  return units;
}

void Trainer::open_folder() {
  if (writes_files()) locks_.emplace_back(folder_, settings_.resume);
  info_.id = run::new_run_id();
  if (!settings_.resume) return;
  settings_.resume = any_rank(writes_files() && locks_.back().found_run());
  if (!settings_.resume && settings_.resume_step > 0) {
    throw Error(folder_.path() + ": there is no run to resume, and so no step " +
                std::to_string(settings_.resume_step) + "; look at --out");
  }
  if (!settings_.resume) {
    observer_.noted(folder_.path() + ": there is no run to resume; it starts with step 1");
    return;
  }
  const run::RunInfo earlier = run::load_run_info(folder_);
  info_.id = earlier.id;
  std::string changed;
  for (const std::string& name : run::changed_on_resume(earlier.settings, settings_)) {
    changed += (changed.empty() ? "" : ", ") + name;
  }
  if (!changed.empty()) {
    throw Error(folder_.run_json() + ": the run was begun with other settings (" + changed +
                "); go on with the same ones, or begin another run with another --out");
  }
}

/// The gate of a run with lag 1: where the parameters are.
void Trainer::make_gate() {
  const Options& options = supervisor_->controller().options();
  const Selector selector = supervisor_->controller().selector();
  has_device_gate_ = optimizer_->has_kernels() && collective_.size() == 1;
  if (has_device_gate_) {
    gate_ = make_device_gate({.optimizer = *optimizer_,
                              .units = *units_,
                              .options = options,
                              .selector = selector,
                              .largest_norm = settings_.clip});
  } else {
    gate_ = make_host_gate({.optimizer = *optimizer_,
                            .options = options,
                            .selector = selector,
                            .largest_norm = settings_.clip,
                            .units = static_cast<std::uint32_t>(units_->units().size())});
  }
  gate_->load(supervisor_->controller().save());
}

void Trainer::open_files() {
  describe();
  // First of all, so that a run that is killed from here on can go on.
  if (writes_files()) run::save_run_info(folder_, info_);
  run::SupervisorSettings supervision{
      .options = options_in_force(),
      .switches = settings_.controller == "gnmr" || !settings_.random_units.empty() || settings_.oracle,
      .watch_steps = settings_.watch_steps,
      .rules = rules_of(settings_),
      .seed = static_cast<std::uint64_t>(settings_.seed),
      .backend = {.can_rerun = true, .sites = nn::kProductCount, .expected_errors = units_->expected_errors()},
      .disarm_after = settings_.disarm_after};
  for (std::size_t product = 0; product < nn::kProductCount; ++product) {
    supervision.sites.emplace_back(to_string(static_cast<nn::Product>(product)));
  }
  if (settings_.oracle) supervision.chosen = [this](std::int64_t step) { return oracle_units(step); };
  if (!settings_.random_units.empty()) supervision.random_share = std::stod(settings_.random_units.front());
  const bool told = writes_files() && settings_.controller != "none";
  const io::ExistingFile existing = settings_.resume ? io::ExistingFile::resume : io::ExistingFile::refuse;
  run::SupervisorFiles files{.existing = existing, .next_step = next_step_};
  if (told) {
    files.journal = folder_.journal();
    files.signals = folder_.signals();
    files.signals_every = settings_.signals_every;
  }
  supervisor_.emplace(units_->units(), supervision, files);
  first_mode_ = supervisor_->mode();
  if (!controller_state_.empty()) {
    RestoreReport report;
    CheckpointStore(folder_.checkpoints(), settings_.keep_checkpoints, info_.id)
        .restoring(next_step_ - 1, kControllerFile, [&] { report = supervisor_->restore(controller_state_); });
    for (const std::string& unit : report.released_units)
      observer_.noted(unit + ": its recovery no longer fits and ends");
  }
  if (restored_mode_) supervisor_->set_mode(*restored_mode_, "as before the run stopped");
  if (supervisor_->has_gate()) make_gate();
  if (!writes_files()) return;
  control_.emplace(folder_.control());
  metrics_.emplace(run::MetricsSettings{.path = folder_.metrics(), .existing = existing, .resume_step = next_step_});
  if (settings_.evidence) evidence_.emplace(folder_.evidence(), existing);
  open_traces();
  if (laboratory_ == nullptr || laboratory_->fault_count() == 0) return;
  io::replace_file(folder_.faults(), laboratory_->truth_text());
  io::replace_file(folder_.fault_list(), laboratory_->fault_list_text());
  if (settings_.harm) harm_.emplace(folder_.harm(), existing);
}

void Trainer::open_traces() {
  std::vector<std::string> units;
  std::vector<std::string> places;
  for (const Unit& unit : units_->units()) {
    units.push_back(unit.name);
    for (std::size_t product = 0; product < nn::kProductCount; ++product) {
      places.push_back(unit.name + "/" + std::string(to_string(static_cast<nn::Product>(product))));
    }
  }
  if (settings_.norms && settings_.controller != "none") norms_.emplace(folder_.trace("norms", next_step_), units);
  if (settings_.errors && uses_errors()) errors_.emplace(folder_.trace("errors", next_step_), places);
}

void Trainer::describe() {
  info_ = {.id = info_.id,
           .label = settings_.label,
           .program = "gnmr",
           .model = settings_.model,
           .parameters = models::parameter_count(model_->config()),
           .recipe = recipe_ != nullptr ? recipe_->name : "none",
           .controller = run::controller_name(settings_),
           .preset = {},
           .batch_tokens = settings_.batch * settings_.sequence * settings_.accumulate * collective_.size(),
           .units = static_cast<std::int64_t>(units_->units().size()),
           .budget = Controller(units_->units(), settings_.options, norms_only()).max_recovered(),
           .data = data_->fingerprint(),
           .faults = settings_.faults.empty() ? "" : words(settings_.faults) + ", injected",
           .started = io::utc_text(std::chrono::system_clock::now()),
           .settings = settings_};
}

void Trainer::announce() {
  observer_.started({.info = info_,
                     .folder = folder_.path(),
                     .data = data_->description(),
                     .coverage = units_->coverage().text(),
                     .control = control_text(),
                     .engine = std::string("torch ") + TORCH_VERSION + ", " + settings_.device + ", " +
                               counted(static_cast<std::uint64_t>(at::get_num_threads()), "thread"),
                     .first_step = next_step_,
                     .injected_faults = laboratory_ != nullptr ? laboratory_->fault_count() : 0});
}

}  // namespace gnmr::train
