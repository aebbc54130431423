// SPDX-License-Identifier: Apache-2.0
// Models and their files, for tests in other languages.
//
//   models_probe gradients MODEL BATCH OUT [recompute]   loss, logits and gradients of a batch: `tokens` and `targets`
//   models_probe save MODEL FOLDER SEED [FILE_BYTES]     a new model; SEED "weights": with the weights that MODEL has
//   models_probe copy IN OUT                             every tensor of a safetensors file
//   models_probe time MODEL BATCH POSITIONS STEPS        milliseconds of a forward and backward pass, one a line
#include <ATen/ATen.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "gnmr/models/llama.h"
#include "gnmr/models/model_files.h"
#include "gnmr/models/safetensors.h"

namespace {

using namespace gnmr::models;
using Arguments = std::vector<std::string>;

Llama load(const std::string& path) {
  Llama model(load_config(path));
  load_weights(*model, path);
  return model;
}

void gradients(const Arguments& arguments) {
  Llama model = load(arguments.at(0));
  model->set_recompute(arguments.size() > 3);
  const TensorFile batch = read_safetensors(arguments.at(1));
  const at::Tensor& tokens = batch.at("tokens");
  const at::Tensor loss = model->loss(tokens, batch.at("targets"));
  loss.backward();
  NamedTensors results{{"loss", loss}};
  for (const auto& parameter : model->named_parameters()) {
    results.emplace_back(hugging_face_name(parameter.key()), parameter.value().grad());
  }
  const at::NoGradGuard no_gradients;
  results.emplace_back("logits", model->forward(tokens));
  write_safetensors(arguments.at(2), results);
}

void save(const Arguments& arguments) {
  Llama model(load_config(arguments.at(0)));
  if (arguments.at(2) == "weights") {
    load_weights(*model, arguments.at(0));
  } else {
    model->initialise(std::stoull(arguments.at(2)));
  }
  SaveOptions options;
  if (arguments.size() > 3) options.largest_file_bytes = std::stoll(arguments.at(3));
  save_model(*model, arguments.at(1), options);
}

void copy(const Arguments& arguments) {
  const TensorFile file = read_safetensors(arguments.at(0));
  write_safetensors(arguments.at(1), file.tensors, file.metadata);
}

void time_steps(const Arguments& arguments) {
  const LlamaConfig config = load_config(arguments.at(0));
  Llama model(config);
  model->initialise(1);
  const auto tokens = at::randint(config.vocabulary, {std::stoll(arguments.at(1)), std::stoll(arguments.at(2)) + 1},
                                  at::TensorOptions().dtype(at::kLong));
  const auto inputs = tokens.slice(1, 0, -1).contiguous();
  const auto targets = tokens.slice(1, 1).contiguous();
  for (int step = std::stoi(arguments.at(3)); step > 0; --step) {
    const auto begin = std::chrono::steady_clock::now();
    model->loss(inputs, targets).backward();
    const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - begin;
    std::printf("%.3f\n", spent.count());
    model->zero_grad();
  }
}

}  // namespace

int main(int count, char** values) {
  const std::string command = count > 1 ? values[1] : "";
  const Arguments arguments(values + (count > 1 ? 2 : 1), values + count);
  try {
    if (command == "gradients") {
      gradients(arguments);
    } else if (command == "save") {
      save(arguments);
    } else if (command == "copy") {
      copy(arguments);
    } else if (command == "time") {
      time_steps(arguments);
    } else {
      std::fprintf(stderr, "models_probe gradients|save|copy|time ...\n");
      return 2;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
