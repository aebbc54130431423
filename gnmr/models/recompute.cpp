// SPDX-License-Identifier: Apache-2.0
// The part of llama_block.h that gives up a block's activations for time.
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <cstddef>
#include <optional>
#include <utility>

#include "gnmr/models/llama_block.h"

namespace gnmr::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What backward needs beside tensors.
struct RecomputedBlock : torch::CustomClassHolder {
  RecomputedBlock(LlamaBlock the_block, RotaryTable the_table)
      : block(std::move(the_block)), table(std::move(the_table)) {}
  LlamaBlock block;
  RotaryTable table;
};

// Measurements and state of a step are counted when the block runs again, not twice.
class UnobservedRerun {
 public:
  explicit UnobservedRerun(LlamaBlockImpl& block)
      : layers_{&block.q->paths(),    &block.k->paths(),  &block.v->paths(),   &block.o->paths(),
                &block.gate->paths(), &block.up->paths(), &block.down->paths()} {
    for (std::size_t i = 0; i < layers_.size(); ++i) before_[i] = std::exchange(layers_[i]->observing, false);
  }
  UnobservedRerun(const UnobservedRerun&) = delete;
  UnobservedRerun& operator=(const UnobservedRerun&) = delete;
  ~UnobservedRerun() {
    for (std::size_t i = 0; i < layers_.size(); ++i) layers_[i]->observing = before_[i];
  }

 private:
  std::array<nn::LinearPaths*, 7> layers_;
  std::array<bool, 7> before_{};
};

// Parameters are inputs of the function, so that their gradients go the way of every other gradient: through hooks, to
// grad() as well as to backward(), and also where the block's input needs none.
class RecomputeFunction : public torch::autograd::Function<RecomputeFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, at::TensorList parameters,
                            const c10::intrusive_ptr<RecomputedBlock>& recomputed) {
    context->save_for_backward({input});
    context->saved_data["block"] = c10::IValue::make_capsule(recomputed);
    context->saved_data["parameters"] = static_cast<std::int64_t>(parameters.size());
    const UnobservedRerun unobserved(*recomputed->block);
    return recomputed->block->forward(input, recomputed->table);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto holder = context->saved_data["block"].toCapsule();
    auto& recomputed = static_cast<RecomputedBlock&>(*holder);
    const at::Tensor saved = context->get_saved_variables()[0];
    const at::Tensor input = saved.detach().requires_grad_(context->needs_input_grad(0));
    variable_list results(1 + static_cast<std::size_t>(context->saved_data["parameters"].toInt()) + 1);
    variable_list wanted;
    std::vector<std::size_t> places;
    if (input.requires_grad()) {
      wanted.push_back(input);
      places.push_back(0);
    }
    std::size_t place = 1;
    for (const at::Tensor& parameter : recomputed.block->parameters()) {
      if (parameter.requires_grad()) {
        wanted.push_back(parameter);
        places.push_back(place);
      }
      ++place;
    }
    const at::AutoGradMode with_gradients(true);
    const at::Tensor output = recomputed.block->forward(input, recomputed.table);
    const variable_list found = torch::autograd::grad({output}, wanted, {gradients[0]}, std::nullopt,
                                                      /*create_graph=*/false, /*allow_unused=*/true);
    for (std::size_t i = 0; i < places.size(); ++i) results[places[i]] = found[i];
    return results;
  }
};

}  // namespace

at::Tensor forward_with_recompute(LlamaBlock& block, const at::Tensor& input, const RotaryTable& table) {
  const variable_list parameters = block->parameters();
  return RecomputeFunction::apply(input, at::TensorList(parameters),
                                  c10::make_intrusive<RecomputedBlock>(block, table));
}

}  // namespace gnmr::models
