// SPDX-License-Identifier: Apache-2.0
// The C++ engine's linear layer on numbers from files, for a test in Python.
//
//   gnmr_linear_probe STEPS TOKENS IN OUT FOLDER RECIPE...
//
// Reads FOLDER/{input,weight,gradient}.bin (float32), runs STEPS steps of one layer, low, and writes FOLDER/
// RECIPE.{output,input_gradient,weight_gradient}.bin of the last one.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

#include "gnmr/recipes/recipe.h"
#include "gnmr/torch/units.h"

namespace {

at::Tensor read_matrix(const std::string& path, std::int64_t rows, std::int64_t columns) {
  at::Tensor matrix = at::empty({rows, columns});
  std::ifstream file(path, std::ios::binary);
  file.read(static_cast<char*>(matrix.mutable_data_ptr()), static_cast<std::streamsize>(matrix.nbytes()));
  if (!file) std::exit(2);
  return matrix;
}

void write_matrix(const std::string& path, const at::Tensor& matrix) {
  const at::Tensor plain = matrix.contiguous();
  std::ofstream file(path, std::ios::binary);
  file.write(static_cast<const char*>(plain.const_data_ptr()), static_cast<std::streamsize>(plain.nbytes()));
}

struct OneLayerImpl : torch::nn::Module {
  OneLayerImpl(std::int64_t in, std::int64_t out) {
    layer = register_module("layer", std::make_shared<gnmr::nn::SwitchableLinearImpl>(in, out, false));
  }
  std::shared_ptr<gnmr::nn::SwitchableLinearImpl> layer;
};

struct Case {
  std::int64_t steps, tokens, in, out;
  std::string folder;
};

void run(const Case& one, const std::string& recipe_name) {
  OneLayerImpl model(one.in, one.out);
  {
    const at::NoGradGuard guard;
    model.layer->weight.copy_(read_matrix(one.folder + "/weight.bin", one.out, one.in));
  }
  const auto recipe = std::make_shared<const gnmr::recipes::Recipe>(gnmr::recipes::load_recipe(recipe_name));
  gnmr::nn::RecoverableUnits units(model, recipe, {}, /*seed=*/0);
  const at::Tensor gradient = read_matrix(one.folder + "/gradient.bin", one.tokens, one.out);
  at::Tensor input;
  at::Tensor output;
  for (std::int64_t step = 1; step <= one.steps; ++step) {
    input = read_matrix(one.folder + "/input.bin", one.tokens, one.in).set_requires_grad(true);
    model.layer->weight.mutable_grad().reset();
    units.begin_step(step);
    output = model.layer->forward(input);
    output.backward(gradient);
    units.end_step();
  }
  const std::string name = one.folder + "/" + recipe_name;
  write_matrix(name + ".output.bin", output.detach());
  write_matrix(name + ".input_gradient.bin", input.grad());
  write_matrix(name + ".weight_gradient.bin", model.layer->weight.grad());
}

}  // namespace

int main(int count, char** words) {
  if (count < 7) {
    std::fprintf(stderr, "expected STEPS TOKENS IN OUT FOLDER RECIPE...\n");
    return 2;
  }
  at::set_num_threads(1);
  const Case one{std::atoll(words[1]), std::atoll(words[2]), std::atoll(words[3]), std::atoll(words[4]), words[5]};
  for (int index = 6; index < count; ++index) run(one, words[index]);
  return 0;
}
