// SPDX-License-Identifier: Apache-2.0
// The sizes of a LLaMA-architecture model: presets by name, and config.json as Hugging Face has it.
//
// Goals: what is not computed is refused by the key that asks for it, never left out in silence; a config that is
// written reads back equal, here and in transformers.
// Non-goals: tensors, training options, other architectures.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gnmr::models {

/// Sizes and constants of a model; `validate` says which combinations there are.
struct LlamaConfig {
  std::int64_t vocabulary = 256;
  std::int64_t hidden = 96;
  std::int64_t intermediate = 256;
  std::int64_t layers = 4;
  std::int64_t heads = 3;
  std::int64_t key_value_heads = 3;
  std::int64_t head_dim = 32;
  std::int64_t max_positions = 1024;
  double rms_eps = 1e-5;
  double rope_theta = 10000;
  bool tied_head = false;       // the head multiplies by the embedding's weight
  bool attention_bias = false;  // of q, k, v and o
  bool mlp_bias = false;        // of gate, up and down
  double initializer_range = 0.02;

  bool operator==(const LlamaConfig&) const = default;
};

/// Throws an `Error` that names the first value that no model can have.
void validate(const LlamaConfig& config);

/// A config from the text of a config.json; an `Error` begins with `place` and names the key.
LlamaConfig parse_config(std::string_view json_text, std::string_view place);

/// The text of a config.json; `dtype` is what the weights beside it are stored in.
std::string config_json(const LlamaConfig& config, std::string_view dtype = "float32");

/// The names of the presets, from small to large.
std::vector<std::string> preset_names();

/// A preset by name; an `Error` that lists the names where there is none such.
LlamaConfig preset_config(std::string_view name);

/// A preset by name, or the config of a model by path: config.json, a folder with one, or a llama2.c file.
LlamaConfig load_config(const std::string& name_or_path);

/// How many numbers the model learns; a tied head has none of its own.
std::int64_t parameter_count(const LlamaConfig& config);

/// Multiply-adds of a forward pass for each token of a sequence of this length: the linear layers, and attention's
/// two GEMMs over the tokens before it. A training step costs three times as many.
std::int64_t multiply_adds_per_token(const LlamaConfig& config, std::int64_t sequence_length);

}  // namespace gnmr::models
