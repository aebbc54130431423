// SPDX-License-Identifier: Apache-2.0
// The config.json part of llama_config.h.
#include <string>

#include "gnmr/io/json.h"
#include "gnmr/io/json_text.h"
#include "gnmr/models/llama_config.h"

namespace gnmr::models {
namespace {

// What a model may ask for and only one answer is computed.
void expect_number(const io::JsonObject& object, std::string_view key, double only) {
  const auto value = object.number_if(key);
  if (value && *value != only) {
    object.fail(key, std::to_string(*value) + " is not computed here, only " + std::to_string(only));
  }
}

// Both `rope_scaling` of older files and `rope_parameters` of newer ones, which also has the theta.
void read_rope(const io::JsonObject& object, LlamaConfig& config) {
  for (const std::string_view key : {"rope_scaling", "rope_parameters"}) {
    const auto rope = object.object_if(key);
    if (!rope) continue;
    for (const std::string_view type_key : {"rope_type", "type"}) {
      const auto type = rope->text_if(type_key);
      if (type && *type != "default") {
        rope->fail(type_key, io::in_quotes(*type) + " is not computed here, only \"default\"");
      }
    }
    expect_number(*rope, "partial_rotary_factor", 1);
    expect_number(*rope, "factor", 1);
    if (const auto theta = rope->number_if("rope_theta")) config.rope_theta = *theta;
  }
}

// Anything else that would change what the model computes.
void refuse_what_is_not_computed(const io::JsonObject& object) {
  const std::string type = object.text("model_type");
  if (type != "llama") object.fail("model_type", "expected \"llama\", got " + io::in_quotes(type));
  const auto activation = object.text_if("hidden_act");
  if (activation && *activation != "silu") {
    object.fail("hidden_act", io::in_quotes(*activation) + " is not computed here, only \"silu\"");
  }
  expect_number(object, "attention_dropout", 0);
  expect_number(object, "partial_rotary_factor", 1);
  if (object.has("quantization_config")) object.fail("quantization_config", "quantized weights are not read here");
}

LlamaConfig config_of(const io::JsonObject& object) {
  refuse_what_is_not_computed(object);
  LlamaConfig config;
  config.vocabulary = object.whole("vocab_size");
  config.hidden = object.whole("hidden_size");
  config.intermediate = object.whole("intermediate_size");
  config.layers = object.whole("num_hidden_layers");
  config.heads = object.whole("num_attention_heads");
  config.key_value_heads = object.whole_if("num_key_value_heads").value_or(config.heads);
  if (const auto head_dim = object.whole_if("head_dim")) {
    config.head_dim = *head_dim;
  } else {
    if (config.heads < 1 || config.hidden % config.heads != 0) {
      object.fail("num_attention_heads", "hidden_size is not a multiple of it, and `head_dim` is missing");
    }
    config.head_dim = config.hidden / config.heads;
  }
  // The defaults are those of transformers.
  config.max_positions = object.whole_if("max_position_embeddings").value_or(2048);
  config.rms_eps = object.number_if("rms_norm_eps").value_or(1e-6);
  config.rope_theta = object.number_if("rope_theta").value_or(10000);
  config.initializer_range = object.number_if("initializer_range").value_or(0.02);
  config.tied_head = object.truth_if("tie_word_embeddings").value_or(false);
  config.attention_bias = object.truth_if("attention_bias").value_or(false);
  config.mlp_bias = object.truth_if("mlp_bias").value_or(false);
  read_rope(object, config);
  validate(config);
  return config;
}

}  // namespace

LlamaConfig parse_config(std::string_view json_text, std::string_view place) {
  return io::read_json_object(json_text, place, config_of, io::RepeatedKeys::accept);
}

std::string config_json(const LlamaConfig& config, std::string_view dtype) {
  io::OrderedJson document;
  document["architectures"] = {"LlamaForCausalLM"};
  document["model_type"] = "llama";
  document["vocab_size"] = config.vocabulary;
  document["hidden_size"] = config.hidden;
  document["intermediate_size"] = config.intermediate;
  document["num_hidden_layers"] = config.layers;
  document["num_attention_heads"] = config.heads;
  document["num_key_value_heads"] = config.key_value_heads;
  document["head_dim"] = config.head_dim;
  document["max_position_embeddings"] = config.max_positions;
  document["rms_norm_eps"] = config.rms_eps;
  // Transformers before 5 read the first, later ones the second.
  document["rope_theta"] = config.rope_theta;
  document["rope_parameters"]["rope_theta"] = config.rope_theta;
  document["rope_parameters"]["rope_type"] = "default";
  document["tie_word_embeddings"] = config.tied_head;
  document["attention_bias"] = config.attention_bias;
  document["mlp_bias"] = config.mlp_bias;
  document["initializer_range"] = config.initializer_range;
  document["hidden_act"] = "silu";
  document["torch_dtype"] = dtype;
  return document.dump(2) + "\n";
}

}  // namespace gnmr::models
