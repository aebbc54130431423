// SPDX-License-Identifier: Apache-2.0
#include "gnmr/torch/units.h"

#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/io/glob.h"
#include "gnmr/low/patrol.h"
#include "gnmr/torch/front_end.h"

namespace gnmr::nn {
namespace {

constexpr std::array<bool, kProductCount> kAllProducts{true, true, true};

bool any_match(const std::vector<std::string>& globs, std::string_view name) {
  return std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) { return io::glob_matches(glob, name); });
}

/// `layers.3.down` belongs to `layers.3`: the path up to its first number. Empty: there is none.
std::string block_of(const std::string& name) {
  std::size_t begin = 0;
  while (begin < name.size()) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const auto digit = [](unsigned char letter) { return std::isdigit(letter) != 0; };
    if (end > begin && std::all_of(name.begin() + static_cast<std::ptrdiff_t>(begin),
                                   name.begin() + static_cast<std::ptrdiff_t>(end), digit)) {
      return name.substr(0, end);
    }
    begin = end + 1;
  }
  return {};
}

std::int64_t multiply_adds(const SwitchableLinearImpl& layer) { return layer.in_features() * layer.out_features(); }

}  // namespace

std::string Coverage::text() const {
  char share[32];
  std::snprintf(share, sizeof share, "%.1f%%", 100 * multiply_add_share);
  std::string line = std::to_string(units) + (units == 1 ? " unit: " : " units: ") + std::to_string(layers) + " of " +
                     std::to_string(all_layers) + " linear layers, " + share + " of their multiply-adds";
  for (std::size_t index = 0; index < left_out.size(); ++index) {
    if (index == 8) return line + " and " + std::to_string(left_out.size() - index) + " more";
    line += (index == 0 ? "; left out: " : ", ") + left_out[index];
  }
  return line;
}

RecoverableUnits::RecoverableUnits(const torch::nn::Module& model, std::shared_ptr<const Recipe> recipe,
                                   const UnitSelection& selection, std::uint64_t seed)
    : recipe_(std::move(recipe)), clock_(std::make_shared<StepClock>()), save_in_8_bits_(selection.save_in_8_bits) {
  clock_->seed = seed;
  parameters_ = model.parameters();
  find_layers(model, selection);
  make_units(selection);
  if (selection.granularity == Granularity::block) add_other_parameters(model);
  requested_.assign(units_.size(), kLow);
  in_force_.assign(units_.size(), kLow);
  count_coverage(model);
}

void RecoverableUnits::find_layers(const torch::nn::Module& model, const UnitSelection& selection) {
  for (const auto& entry : model.named_modules("", /*include_self=*/false)) {
    const auto module = std::dynamic_pointer_cast<SwitchableLinearImpl>(entry.value());
    if (module == nullptr) continue;
    if (!any_match(selection.allow, entry.key()) || any_match(selection.deny, entry.key())) {
      coverage_.left_out.push_back(entry.key());
      continue;
    }
    Layer layer{entry.key(), module, {}, false};
    for (std::size_t index = 0; index < parameters_.size(); ++index) {
      if (parameters_[index].is_same(module->weight) || parameters_[index].is_same(module->bias)) {
        layer.parameters.push_back(index);
      }
    }
    LinearPaths& paths = module->paths();
    paths.recipe = recipe_;
    paths.clock = clock_;
    paths.can_save_low = selection.save_in_8_bits;
    paths.keep_low_weight = !selection.recast_weights;
    paths.layer = static_cast<std::uint32_t>(layers_.size());
    paths.numbers_row = layers_.size();
    layer.frozen = std::none_of(layer.parameters.begin(), layer.parameters.end(),
                                [&](std::size_t index) { return parameters_[index].requires_grad(); });
    paths.measure_products = selection.granularity == Granularity::product || layer.frozen;
    measures_products_ = measures_products_ || paths.measure_products;
    layers_.push_back(std::move(layer));
  }
}

void RecoverableUnits::add_unit(Unit unit, Source source, const UnitSelection& selection) {
  unit.forced = any_match(selection.forced, unit.name);
  units_.push_back(std::move(unit));
  sources_.push_back(std::move(source));
}

void RecoverableUnits::make_units(const UnitSelection& selection) {
  for (std::size_t index = 0; index < layers_.size(); ++index) {
    const Layer& layer = layers_[index];
    const SwitchableLinearImpl& module = *layer.module;
    const std::string group = block_of(layer.name);
    const bool frozen = layer.frozen;
    const std::int64_t cost = multiply_adds(module);
    // First, because it has the norm of its layer: of equals the later one is admitted, and that should be the layer.
    if (selection.save_in_8_bits && selection.granularity != Granularity::block) {
      const Part part{index, {}, true};
      add_unit({.name = layer.name + ".saved", .cost = module.in_features(), .group = group}, {{part}, frozen},
               selection);
    }
    if (selection.granularity == Granularity::product) {
      for (std::size_t product = 0; product < kProductCount; ++product) {
        Part part{index, {}, false};
        part.products[product] = true;
        const std::string name = layer.name + "." + std::string(to_string(static_cast<Product>(product)));
        add_unit({.name = name, .cost = cost, .group = group}, {{part}, true}, selection);
      }
    } else if (selection.granularity == Granularity::block && !group.empty()) {
      // Layers of a block follow each other.
      if (!units_.empty() && units_.back().name == group) {
        units_.back().cost += 3 * cost;
        sources_.back().by_products = sources_.back().by_products && frozen;
        sources_.back().parts.push_back({index, kAllProducts, selection.save_in_8_bits});
      } else {
        const Part part{index, kAllProducts, selection.save_in_8_bits};
        add_unit({.name = group, .cost = 3 * cost}, {{part}, frozen}, selection);
      }
    } else {
      const Part part{index, kAllProducts, false};
      add_unit({.name = layer.name, .cost = 3 * cost, .group = group}, {{part}, frozen}, selection);
    }
  }
}

/// A block is judged by all of its trainable parameters, those of its norms included.
void RecoverableUnits::add_other_parameters(const torch::nn::Module& model) {
  std::vector<std::uint8_t> of_layers(parameters_.size(), 0);
  for (const Layer& layer : layers_) {
    for (const std::size_t parameter : layer.parameters) of_layers[parameter] = 1;
  }
  std::size_t index = 0;
  for (const auto& entry : model.named_parameters()) {
    const std::string block = block_of(entry.key());
    for (std::size_t unit = 0; unit < units_.size() && of_layers[index] == 0; ++unit) {
      if (units_[unit].name == block) sources_[unit].other_parameters.push_back(index);
    }
    ++index;
  }
}

void RecoverableUnits::count_coverage(const torch::nn::Module& model) {
  double all = 0;
  double watched = 0;
  for (const auto& module : model.modules(/*include_self=*/false)) {
    const auto linear = std::dynamic_pointer_cast<SwitchableLinearImpl>(module);
    if (linear == nullptr) continue;
    all += static_cast<double>(multiply_adds(*linear));
    ++coverage_.all_layers;
  }
  for (const Layer& layer : layers_) watched += static_cast<double>(multiply_adds(*layer.module));
  coverage_.units = units_.size();
  coverage_.layers = layers_.size();
  coverage_.multiply_add_share = all > 0 ? watched / all : 0;
}

void RecoverableUnits::request(std::span<const UnitIndex> high, std::span<const UnitIndex> in_recovery) {
  std::fill(requested_.begin(), requested_.end(), std::uint8_t{kLow});
  for (const UnitIndex unit : high) {
    if (unit >= requested_.size()) throw Error("[request] expected units below " + std::to_string(requested_.size()));
    requested_[unit] = kHigh;
  }
  for (const UnitIndex unit : in_recovery) {
    if (unit < requested_.size() && requested_[unit] == kHigh) requested_[unit] = kRecovery;
  }
}

void RecoverableUnits::measure_high(std::span<const UnitIndex> units) {
  for (const UnitIndex unit : units) {
    if (unit >= units_.size()) throw Error("[measure_high] expected units below " + std::to_string(units_.size()));
  }
  measured_high_.assign(units.begin(), units.end());
}

void RecoverableUnits::set_hook(LowPathHook* hook) {
  for (Layer& layer : layers_) layer.module->paths().hook = hook;
}

void RecoverableUnits::set_hook(std::size_t layer, LowPathHook* hook) { layers_[layer].module->paths().hook = hook; }

bool RecoverableUnits::runs_low(std::size_t layer) const {
  const LinearPaths& paths = layers_[layer].module->paths();
  return std::any_of(paths.low.begin(), paths.low.end(), [](bool low) { return low; });
}

bool RecoverableUnits::is_patrolled(std::size_t layer) const {
  if (patrol_round_.empty()) return false;
  return low::is_due(patrol_round_[layer], patrol_rounds_, clock_->step);
}

/// Where the model is on a device with kernels, its layers keep their numbers there.
void RecoverableUnits::use_device() {
  if (layers_.empty()) return;
  const at::Tensor& weight = layers_.front().module->weight;
  if (!has_device_numbers(weight)) return;
  if (numbers_ == nullptr || numbers_->device() != weight.device().index()) {
    const c10::DeviceGuard guard(weight.device());
    pool_ = std::make_shared<PinnedPool>();  // its events belong to a device
    numbers_ = std::make_shared<low::DeviceNumbers>(front_end(), layers_.size(), recipe_, matrix_of(weight));
    for (Layer& layer : layers_) layer.module->paths().numbers = numbers_;
  }
}

void RecoverableUnits::begin_step(std::int64_t step, PassKind pass, bool again) {
  const std::vector<UnitIndex> measured = std::exchange(measured_high_, {});
  use_device();
  if (numbers_ != nullptr) {
    const c10::DeviceGuard guard(layers_.front().module->weight.device());
    numbers_->begin_step();
  }
  clock_->step = step;
  clock_->micro_batch = 0;
  clock_->rerun = again;
  in_force_ = requested_;
  pass_ = pass;
  for (std::size_t index = 0; index < layers_.size(); ++index) {
    LinearPaths& paths = layers_[index].module->paths();
    paths.begin_step();
    const bool low = pass != PassKind::trial;
    paths.run_all(low);
    paths.save_low = low && save_in_8_bits_;
    paths.comparison = Comparison::none;
    if (pass == PassKind::trial) paths.comparison = Comparison::full;
    if (pass == PassKind::step && is_patrolled(index)) paths.comparison = Comparison::projected;
  }
  if (pass == PassKind::trial) return;
  apply_unit_paths();
  for (const UnitIndex unit : measured) {
    if (pass != PassKind::step || in_force_[unit] == kLow) continue;
    for (const Part& part : sources_[unit].parts) layers_[part.layer].module->paths().comparison = Comparison::full;
  }
}

/// Takes units that are not low off the low paths of their layers.
void RecoverableUnits::apply_unit_paths() {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (in_force_[unit] == kLow) continue;
    for (const Part& part : sources_[unit].parts) {
      LinearPaths& paths = layers_[part.layer].module->paths();
      for (std::size_t product = 0; product < kProductCount; ++product) {
        if (!part.products[product]) continue;
        if (in_force_[unit] == kRecovery && recipe_ != nullptr) {
          paths.recover(product);
        } else {
          paths.low[product] = false;
        }
      }
      if (part.saved) paths.save_low = false;
    }
  }
}

void RecoverableUnits::end_step(const formats::Refresh& refresh) {
  if (numbers_ != nullptr) {
    numbers_->end_step(refresh);
    return;
  }
  for (Layer& layer : layers_) layer.module->paths().end_step(refresh);
}

std::size_t RecoverableUnits::high_count() const {
  return in_force_.size() - static_cast<std::size_t>(std::count(in_force_.begin(), in_force_.end(), kLow));
}

double RecoverableUnits::high_cost_share() const {
  if (pass_ == PassKind::trial) return 1;
  double all = 0;
  double high = 0;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    const auto cost = static_cast<double>(units_[unit].cost);
    all += cost;
    if (in_force_[unit] != kLow) high += cost;
  }
  return all > 0 ? high / all : 0;
}

/// Whether a GEMM's gradient is a part of the norm of a unit whose norm is that of its GEMMs.
bool RecoverableUnits::measures_norm(const Part& part, std::size_t product) {
  const bool whole_layer = part.products == kAllProducts || part.saved;
  // A layer with nothing trainable is judged by its output's gradient alone.
  return whole_layer ? product == 0 : part.products[product];
}

template <class Visit>
void RecoverableUnits::for_measured_products(std::size_t unit, Visit visit) const {
  if (!sources_[unit].by_products) return;
  for (const Part& part : sources_[unit].parts) {
    const LinearPaths& paths = layers_[part.layer].module->paths();
    for (std::size_t product = 0; product < kProductCount; ++product) {
      if (measures_norm(part, product)) visit(paths.measured[product]);
    }
  }
}

std::vector<double> RecoverableUnits::product_squares() const {
  std::vector<double> squares(units_.size(), 0.0);
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    for_measured_products(unit, [&](const ProductMeasurement& measured) { squares[unit] += measured.squared_norm; });
  }
  return squares;
}

bool RecoverableUnits::measured_products(std::size_t unit) const {
  bool sampled = false;
  for_measured_products(unit, [&](const ProductMeasurement& measured) { sampled = sampled || measured.sampled; });
  return sampled;
}

RecoverableUnits::Norms RecoverableUnits::norms(std::span<const double> parameter_squares,
                                                std::span<const std::uint8_t> has_gradient,
                                                std::span<const double> product_squares) const {
  if (parameter_squares.size() != parameters_.size() || has_gradient.size() != parameters_.size() ||
      product_squares.size() != units_.size()) {
    throw Error("[norms] expected " + std::to_string(parameters_.size()) + " parameters' and " +
                std::to_string(units_.size()) + " units' sums of squares");
  }
  Norms norms{std::vector<double>(units_.size(), 0.0), std::vector<std::uint8_t>(units_.size(), 0)};
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    double squares = 0;
    if (sources_[unit].by_products) {
      squares = product_squares[unit];
      // What other processes measured counts too; there, too, a gradient was made.
      norms.sampled[unit] = squares != 0 || measured_products(unit) ? 1 : 0;
    } else {
      for (const Part& part : sources_[unit].parts) {
        for (const std::size_t parameter : layers_[part.layer].parameters) {
          if (has_gradient[parameter] == 0) continue;
          squares += parameter_squares[parameter];
          norms.sampled[unit] = 1;
        }
      }
      for (const std::size_t parameter : sources_[unit].other_parameters) {
        if (has_gradient[parameter] != 0) squares += parameter_squares[parameter];
      }
    }
    norms.values[unit] = std::sqrt(squares);
  }
  return norms;
}

kernels::UnitLists RecoverableUnits::norm_lists(std::span<const std::uint8_t> has_gradient) const {
  kernels::UnitLists lists{.first = {0}, .indices = {}};
  const auto add = [&](std::size_t index) { lists.indices.push_back(static_cast<std::uint32_t>(index)); };
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    for (const Part& part : sources_[unit].parts) {
      if (sources_[unit].by_products) {
        for (std::size_t product = 0; product < kProductCount; ++product) {
          const bool sampled = layers_[part.layer].module->paths().measured[product].sampled;
          if (sampled && measures_norm(part, product)) add(parameters_.size() + part.layer * kProductCount + product);
        }
        continue;
      }
      for (const std::size_t parameter : layers_[part.layer].parameters) {
        if (has_gradient[parameter] != 0) add(parameter);
      }
    }
    // As `norms` has it: they count, but are no sample by themselves.
    const bool sampled = lists.first.back() != lists.indices.size();
    for (const std::size_t parameter : sources_[unit].other_parameters) {
      if (sampled && !sources_[unit].by_products && has_gradient[parameter] != 0) add(parameter);
    }
    lists.first.push_back(static_cast<std::uint32_t>(lists.indices.size()));
  }
  return lists;
}

void RecoverableUnits::measure_casts(bool wanted) {
  measures_casts_ = wanted;
  for (Layer& layer : layers_) layer.module->paths().measure_casts = wanted;
}

CastEvidence RecoverableUnits::evidence(UnitIndex unit) const {
  CastEvidence worst;
  for (const Part& part : sources_[unit].parts) {
    const LinearPaths& paths = layers_[part.layer].module->paths();
    for (std::size_t product = 0; product < kProductCount; ++product) {
      if (!part.products[product]) continue;
      for (const formats::Statistics& cast : paths.measured[product].casts) {
        if (cast.elements == 0) continue;
        const auto elements = static_cast<double>(cast.elements);
        worst.measured = true;
        worst.relative_error = std::max(worst.relative_error, cast.relative_error());
        worst.saturated = std::max(worst.saturated, static_cast<double>(cast.overflowed) / elements);
        worst.flushed = std::max(worst.flushed, static_cast<double>(cast.flushed) / elements);
      }
    }
  }
  return worst;
}

std::vector<std::string> RecoverableUnits::layer_names() const {
  std::vector<std::string> names;
  for (const Layer& layer : layers_) names.push_back(layer.name);
  return names;
}

EvaluationPaths::EvaluationPaths(RecoverableUnits& units, EvaluatedPath path) : units_(units) {
  for (const RecoverableUnits::Layer& layer : units_.layers_) {
    LinearPaths& paths = layer.module->paths();
    kept_.push_back(paths);
    paths.observing = false;
    paths.hook = nullptr;
    paths.run_all(path != EvaluatedPath::high);
    paths.save_low = false;
  }
  if (path == EvaluatedPath::trained) units_.apply_unit_paths();
}

EvaluationPaths::~EvaluationPaths() {
  for (std::size_t index = 0; index < kept_.size(); ++index) {
    LinearPaths& paths = units_.layers_[index].module->paths();
    paths.observing = kept_[index].observing;
    paths.hook = kept_[index].hook;
    paths.low = kept_[index].low;
    paths.recovers = kept_[index].recovers;
    paths.save_low = kept_[index].save_low;
  }
}

UnobservedPaths::UnobservedPaths(RecoverableUnits& units) : units_(units) {
  for (const RecoverableUnits::Layer& layer : units_.layers_) {
    observed_.push_back(layer.module->paths().observing);
    layer.module->paths().observing = false;
  }
}

UnobservedPaths::~UnobservedPaths() {
  for (std::size_t index = 0; index < observed_.size(); ++index) {
    units_.layers_[index].module->paths().observing = observed_[index];
  }
}

}  // namespace gnmr::nn
