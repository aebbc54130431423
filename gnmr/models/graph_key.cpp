// SPDX-License-Identifier: Apache-2.0
#include "gnmr/models/graph_key.h"

#include <algorithm>
#include <utility>

#include "gnmr/low/device_numbers.h"
#include "gnmr/low/quantize.h"
#include "gnmr/torch/front_end.h"

namespace gnmr::models {
namespace {

using nn::kProductCount;
using nn::LinearPaths;
using nn::Operand;
using nn::Product;

bool is_delayed(const std::optional<nn::CastRule>& rule) {
  return rule && rule->grouping == recipes::Grouping::delayed;
}

/// Whether a layer's scales come from device memory: all of those that its low GEMMs take, or where `quickly`, one.
bool has_history(LinearPaths& paths, bool quickly) {
  for (std::size_t product = 0; product < kProductCount; ++product) {
    if (!paths.low[product]) continue;
    for (std::size_t place = 0; place < 2; ++place) {
      if (!is_delayed(paths.recipe->rules[product][place])) continue;
      const auto which = static_cast<Product>(product);
      if (paths.numbers->delayed_scale(paths.numbers_row, which, place) == nullptr) return false;
      if (quickly) return true;
    }
  }
  return true;
}

/// Whether a recipe's quantization is the same work in each step.
bool is_steady(const nn::Recipe& recipe, const at::Tensor& weight) {
  for (const auto& rules : recipe.rules) {
    for (const std::optional<nn::CastRule>& rule : rules) {
      if (!rule) continue;
      if (rule->rounding != formats::Rounding::nearest_even || rule->hadamard != 0) return false;
      // Elsewhere the host has the scale.
      if (is_delayed(rule) && !low::can_quantize_to_codes(nn::matrix_of(weight), *rule)) return false;
    }
  }
  return true;
}

bool uses_delayed(const nn::Recipe& recipe) {
  return recipe.uses_delayed(Operand::input) || recipe.uses_delayed(Operand::weight) ||
         recipe.uses_delayed(Operand::output_gradient);
}

/// Whether what a layer does in this pass depends on the key alone.
bool depends_on_key_alone(const LinearPaths& paths) {
  bool recovers_by_rules = false;
  for (std::size_t product = 0; product < kProductCount; ++product) {
    recovers_by_rules = recovers_by_rules || paths.recovery_rules(product) != nullptr;
  }
  return !recovers_by_rules && paths.hook == nullptr && paths.comparison == nn::Comparison::none && paths.observing &&
         !paths.measure_products && !paths.measure_casts && !paths.save_low;
}

}  // namespace

std::array<nn::SwitchableLinearImpl*, kBlockLayers> layers_of(LlamaBlockImpl& block) {
  return {block.q.get(),    block.k.get(),  block.v.get(),   block.o.get(),
          block.gate.get(), block.up.get(), block.down.get()};
}

std::vector<at::Tensor*> members_of(LlamaBlockImpl& block) {
  std::vector<at::Tensor*> members{&block.norm1->weight, &block.norm2->weight};
  for (nn::SwitchableLinearImpl* const layer : layers_of(block)) {
    members.push_back(&layer->weight);
    if (layer->bias.defined()) members.push_back(&layer->bias);
  }
  return members;
}

/// Whose gradients are wanted; all is forgotten where parameters are no longer where they were.
bool GraphKeys::take_parameters(LlamaBlockImpl& block, const at::Tensor& input, GraphKey& key) {
  const std::vector<at::Tensor*> members = members_of(block);
  std::vector<const void*> now;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const at::Tensor& parameter = *members[i];
    if (parameter.device() != input.device() || parameter.scalar_type() != input.scalar_type()) return false;
    if (parameter.requires_grad()) key.wanted |= 1u << i;
    now.push_back(parameter.const_data_ptr());
  }
  have_moved_ = now != addresses_;
  if (have_moved_) {
    steady_recipes_ = {};
    known_numbers_ = {};
    addresses_ = std::move(now);
  }
  return key.input_gradient || key.wanted != 0;
}

/// What a layer does; false: it is not the same work in each step.
bool GraphKeys::take_layer(std::size_t index, nn::SwitchableLinearImpl& layer, GraphKey& key) {
  LinearPaths& paths = layer.paths();
  if (!depends_on_key_alone(paths)) return false;
  if (paths.recipe == nullptr) return true;
  // They are made at the first use, and must not be in a graph's memory.
  if (paths.numbers == nullptr || !nn::has_device_numbers(layer.weight)) return false;
  if (steady_recipes_[index] != paths.recipe) {
    if (!is_steady(*paths.recipe, layer.weight)) return false;
    steady_recipes_[index] = paths.recipe;
  }
  if (uses_delayed(*paths.recipe)) {
    const void* const memory = paths.numbers.get();
    if (!has_history(paths, known_numbers_[index] == memory)) return false;
    // Only those of low GEMMs were looked at.
    if (std::all_of(paths.low.begin(), paths.low.end(), [](bool low) { return low; })) known_numbers_[index] = memory;
    if (paths.clock != nullptr && paths.clock->micro_batch != 0) key.later_micro_batches |= 1u << index;
  }
  for (std::size_t product = 0; product < kProductCount; ++product) {
    if (paths.low[product]) key.low |= 1u << (kProductCount * index + product);
  }
  key.recipes[index] = paths.recipe;
  key.numbers[index] = paths.numbers;
  return true;
}

std::optional<GraphKey> GraphKeys::key_of(LlamaBlockImpl& block, const at::Tensor& input, bool recompute) {
  GraphKey key{.shape = input.sizes().vec(),
               .type = input.scalar_type(),
               .recompute = recompute,
               .input_gradient = input.requires_grad()};
  have_moved_ = false;
  if (!take_parameters(block, input, key)) return std::nullopt;
  const auto layers = layers_of(block);
  for (std::size_t i = 0; i < kBlockLayers; ++i) {
    if (!take_layer(i, *layers[i], key)) return std::nullopt;
  }
  return key;
}

}  // namespace gnmr::models
