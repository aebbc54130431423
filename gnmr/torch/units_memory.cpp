// SPDX-License-Identifier: Apache-2.0
// The amax histories of a model's low paths, as named tensors and as flat lists.
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "gnmr/core/error.h"
#include "gnmr/torch/device_numbers.h"
#include "gnmr/torch/units.h"

namespace gnmr::nn {
namespace {

/// `layers.3.down.forward.input`.
std::string slot_name(const std::string& layer, std::size_t product, std::size_t place) {
  const auto which = static_cast<Product>(product);
  return layer + "." + std::string(to_string(which)) + "." + std::string(to_string(operands_of(which)[place]));
}

bool has_history(const Recipe* recipe, std::size_t product, std::size_t place) {
  if (recipe == nullptr) return false;
  const auto& rule = recipe->rules[product][place];
  return rule && rule->grouping == recipes::Grouping::delayed;
}

at::Tensor count_tensor(std::uint64_t count) { return at::tensor({static_cast<std::int64_t>(count)}, at::kLong); }

/// Tensors of a checkpoint, until they are taken over.
class SavedHistories {
 public:
  explicit SavedHistories(const std::vector<std::pair<std::string, at::Tensor>>& memory)
      : found_(memory.begin(), memory.end()) {}

  formats::DelayedState take(const std::string& name, std::uint32_t history_length) {
    formats::DelayedState state;
    const at::Tensor history = take_tensor(name + ".amax_history", at::kFloat, 0, history_length);
    state.amax_history.assign(history.const_data_ptr<float>(), history.const_data_ptr<float>() + history.numel());
    state.scale = take_tensor(name + ".scale", at::kFloat, 1, 1).item<float>();
    const std::int64_t observations = take_counts(name + ".observations", 1)[0];
    const bool possible = std::all_of(state.amax_history.begin(), state.amax_history.end(),
                                      [](float amax) { return std::isfinite(amax) && amax >= 0; });
    if (!possible || !(state.scale > 0) || !std::isfinite(state.scale) || observations < 0) refuse(name);
    state.observations = static_cast<std::uint64_t>(observations);
    if (found_.contains(name + ".refreshes")) take_refreshes(name, state);
    return state;
  }

  void check_nothing_is_left() const {
    if (!found_.empty()) throw Error("amax history: no low path has " + found_.begin()->first);
  }

 private:
  at::Tensor take_tensor(const std::string& name, at::ScalarType type, std::int64_t least, std::int64_t most) {
    const auto entry = found_.find(name);
    if (entry == found_.end()) throw Error("amax history: " + name + " is missing");
    const at::Tensor tensor = entry->second;
    found_.erase(entry);
    if (tensor.scalar_type() != type || tensor.dim() != 1 || tensor.numel() < least || tensor.numel() > most) {
      throw Error("amax history: " + name + " has a wrong type or shape");
    }
    return tensor.contiguous();
  }

  std::vector<std::int64_t> take_counts(const std::string& name, std::int64_t most) {
    const at::Tensor counts = take_tensor(name, at::kLong, 1, most);
    return {counts.const_data_ptr<std::int64_t>(), counts.const_data_ptr<std::int64_t>() + counts.numel()};
  }

  void take_refreshes(const std::string& name, formats::DelayedState& state) {
    // Earlier versions wrote how many there were and the observations at the last of them.
    const std::vector<std::int64_t> counts = take_counts(name + ".refreshes", 2);
    const bool is_old = counts.size() == 2;
    const std::int64_t last = is_old ? counts[1] : 1;
    const std::int64_t debt = is_old ? 0 : take_counts(name + ".refresh_debt", 1)[0];
    if (counts[0] < (is_old ? 1 : 0) || last < 1 || static_cast<std::uint64_t>(last) > state.observations || debt < 0 ||
        debt > formats::kMostRefreshDebt) {
      refuse(name);
    }
    state.refreshes = static_cast<std::uint64_t>(counts[0]);
    state.refresh_debt = is_old ? formats::debt_of_last_refresh(state.observations, static_cast<std::uint64_t>(last))
                                : static_cast<std::uint32_t>(debt);
  }

  [[noreturn]] static void refuse(const std::string& name) {
    throw Error("amax history: " + name + " holds impossible values");
  }

  std::map<std::string, at::Tensor> found_;
};

}  // namespace

std::vector<float> RecoverableUnits::step_amaxes() const {
  std::vector<float> amaxes;
  for (const Layer& layer : layers_) {
    const auto& seen = layer.module->paths().amax.step_amax;
    amaxes.insert(amaxes.end(), seen.begin(), seen.end());
  }
  return amaxes;
}

void RecoverableUnits::set_step_amaxes(std::span<const float> amaxes) {
  if (amaxes.size() != layers_.size() * kOperandCount) {
    throw Error("[set_step_amaxes] expected " + std::to_string(layers_.size() * kOperandCount) + " numbers, got " +
                std::to_string(amaxes.size()));
  }
  for (std::size_t index = 0; index < layers_.size(); ++index) {
    auto& seen = layers_[index].module->paths().amax.step_amax;
    std::copy_n(amaxes.begin() + static_cast<std::ptrdiff_t>(index * kOperandCount), kOperandCount, seen.begin());
  }
  if (numbers_ != nullptr) set_amaxes(*numbers_, amaxes);
}

std::uint64_t RecoverableUnits::refreshes() const {
  std::uint64_t count = 0;
  if (numbers_ != nullptr) {
    for (const formats::DelayedState& state : numbers_->save()) count += state.refreshes;
    return count;
  }
  for (const Layer& layer : layers_) {
    for (const auto& product : layer.module->paths().amax.delayed) {
      for (const formats::DelayedState& state : product) count += state.refreshes;
    }
  }
  return count;
}

std::vector<std::pair<std::string, at::Tensor>> RecoverableUnits::memory() const {
  std::vector<std::pair<std::string, at::Tensor>> memory;
  // In the order of the loops below.
  const std::vector<formats::DelayedState> on_device =
      numbers_ != nullptr ? numbers_->save() : std::vector<formats::DelayedState>();
  std::size_t next = 0;
  for (const Layer& layer : layers_) {
    const LinearPaths& paths = layer.module->paths();
    for (std::size_t product = 0; product < kProductCount; ++product) {
      for (std::size_t place = 0; place < 2; ++place) {
        if (!has_history(recipe_.get(), product, place)) continue;
        const formats::DelayedState& state =
            numbers_ != nullptr ? on_device[next++] : paths.amax.delayed[product][place];
        const std::string name = slot_name(layer.name, product, place);
        memory.emplace_back(name + ".amax_history", at::tensor(state.amax_history, at::kFloat));
        memory.emplace_back(name + ".scale", at::tensor({state.scale}, at::kFloat));
        memory.emplace_back(name + ".observations", count_tensor(state.observations));
        if (state.refreshes == 0 && state.refresh_debt == 0) continue;
        memory.emplace_back(name + ".refreshes", count_tensor(state.refreshes));
        memory.emplace_back(name + ".refresh_debt", count_tensor(state.refresh_debt));
      }
    }
  }
  return memory;
}

void RecoverableUnits::restore_memory(const std::vector<std::pair<std::string, at::Tensor>>& memory) {
  SavedHistories saved(memory);
  std::vector<formats::DelayedState> states;
  for (const Layer& layer : layers_) {
    for (std::size_t product = 0; product < kProductCount; ++product) {
      for (std::size_t place = 0; place < 2; ++place) {
        if (!has_history(recipe_.get(), product, place)) continue;
        const std::uint32_t history_length = recipe_->rules[product][place]->history_length;
        states.push_back(saved.take(slot_name(layer.name, product, place), history_length));
      }
    }
  }
  saved.check_nothing_is_left();
  use_device();
  if (numbers_ != nullptr) numbers_->load(states);
  std::size_t next = 0;
  for (Layer& layer : layers_) {
    for (std::size_t product = 0; product < kProductCount; ++product) {
      for (std::size_t place = 0; place < 2; ++place) {
        if (!has_history(recipe_.get(), product, place)) continue;
        layer.module->paths().amax.delayed[product][place] = std::move(states[next++]);
      }
    }
  }
}

}  // namespace gnmr::nn
