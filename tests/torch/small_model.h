// SPDX-License-Identifier: Apache-2.0
// A model for tests of units: two blocks of two linear layers each, one layer beside them, and a head.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "gnmr/torch/units.h"
#include "torch/tensor_testing.h"

namespace gnmr::nn::testing {

/// One block: down(relu(up(x))) + x.
class SmallBlock : public torch::nn::Module {
 public:
  SmallBlock() : up(8, 12, true), down(12, 8) {
    register_module("up", up);
    register_module("down", down);
  }
  at::Tensor forward(const at::Tensor& input) { return input + down->forward(up->forward(input).relu()); }

  SwitchableLinear up;
  SwitchableLinear down;
};

/// Modules: stem, layers.0.{up, down}, layers.1.{up, down}, head.
class SmallModel : public torch::nn::Module {
 public:
  SmallModel() : stem(6, 8), head(8, 10) {
    register_module("stem", stem);
    auto layers = std::make_shared<Holder>();
    for (int index = 0; index < 2; ++index) {
      blocks.push_back(std::make_shared<SmallBlock>());
      layers->add(std::to_string(index), blocks.back());
    }
    register_module("layers", layers);
    register_module("head", head);
    const at::NoGradGuard no_gradients;
    std::uint64_t seed = 1;
    for (at::Tensor& parameter : parameters()) parameter.copy_(normal(parameter.sizes(), seed++) * 0.3);
  }

  at::Tensor forward(const at::Tensor& input) {
    at::Tensor hidden = stem->forward(input);
    for (const auto& block : blocks) hidden = block->forward(hidden);
    return head->forward(hidden);
  }

  /// One micro-batch: gradients are added up.
  at::Tensor run(std::uint64_t seed, double size = 1) {
    const at::Tensor output = forward(normal({5, 6}, seed) * size);
    output.square().mean().backward();
    return output.detach();
  }

  SwitchableLinear stem;
  std::vector<std::shared_ptr<SmallBlock>> blocks;
  SwitchableLinear head;

 private:
  class Holder : public torch::nn::Module {
   public:
    void add(const std::string& name, const std::shared_ptr<SmallBlock>& block) { register_module(name, block); }
  };
};

/// What the trainer hands to `norms`.
struct Gradients {
  std::vector<double> squares;
  std::vector<std::uint8_t> has;
};

inline Gradients gradients_of(const RecoverableUnits& units) {
  Gradients gradients;
  for (const at::Tensor& parameter : units.parameters()) {
    const at::Tensor gradient = parameter.grad();
    gradients.has.push_back(gradient.defined() ? 1 : 0);
    gradients.squares.push_back(gradient.defined() ? gradient.to(at::kDouble).square().sum().item<double>() : 0);
  }
  return gradients;
}

inline RecoverableUnits::Norms norms_of(const RecoverableUnits& units) {
  const Gradients gradients = gradients_of(units);
  return units.norms(gradients.squares, gradients.has, units.product_squares());
}

inline std::vector<std::string> names_of(const RecoverableUnits& units) {
  std::vector<std::string> names;
  for (const Unit& unit : units.units()) names.push_back(unit.name);
  return names;
}

}  // namespace gnmr::nn::testing
