// SPDX-License-Identifier: Apache-2.0
// The config.json part of llama_config.h.
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/text_error.h"
#include "gnmr/models/llama_config.h"

namespace gnmr::models {
namespace {

using nlohmann::json;

// One object of the file; `null` is as if the key were not there.
class ConfigObject {
 public:
  ConfigObject(const json& object, std::string place, std::string prefix = {})
      : object_(object), place_(std::move(place)), prefix_(std::move(prefix)) {}

  [[noreturn]] void fail(std::string_view key, const std::string& message) const {
    throw io::error_at(place_, "`" + prefix_ + std::string(key) + "`: " + message);
  }

  const json* find(std::string_view key) const {
    const auto found = object_.find(std::string(key));
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  std::optional<std::int64_t> whole_number(std::string_view key) const {
    const json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (value->is_number_unsigned() &&
        value->get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      fail(key, "too large a number");
    }
    if (!value->is_number_integer()) expected(key, "a whole number", *value);
    return value->get<std::int64_t>();
  }

  std::int64_t required(std::string_view key) const {
    const auto value = whole_number(key);
    if (!value) fail(key, "is missing");
    return *value;
  }

  std::optional<double> number(std::string_view key) const {
    const json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number()) expected(key, "a number", *value);
    return value->get<double>();
  }

  bool flag(std::string_view key) const {
    const json* value = find(key);
    if (value == nullptr) return false;
    if (!value->is_boolean()) expected(key, "true or false", *value);
    return value->get<bool>();
  }

  std::optional<std::string> text(std::string_view key) const {
    const json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string()) expected(key, "a string", *value);
    return value->get<std::string>();
  }

  // What a model may ask for and only one answer is computed.
  void expect_number(std::string_view key, double only) const {
    const auto value = number(key);
    if (value && *value != only) {
      fail(key, std::to_string(*value) + " is not computed here, only " + std::to_string(only));
    }
  }

  std::optional<ConfigObject> object(std::string_view key) const {
    const json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_object()) expected(key, "an object", *value);
    return ConfigObject(*value, place_, prefix_ + std::string(key) + ".");
  }

 private:
  [[noreturn]] void expected(std::string_view key, std::string_view what, const json& value) const {
    fail(key, "expected " + std::string(what) + ", got " + value.type_name());
  }

  const json& object_;
  std::string place_;
  std::string prefix_;
};

// Both `rope_scaling` of older files and `rope_parameters` of newer ones, which also has the theta.
void read_rope(const ConfigObject& object, LlamaConfig& config) {
  for (const std::string_view key : {"rope_scaling", "rope_parameters"}) {
    const auto rope = object.object(key);
    if (!rope) continue;
    for (const std::string_view type_key : {"rope_type", "type"}) {
      const auto type = rope->text(type_key);
      if (type && *type != "default") {
        rope->fail(type_key, io::in_quotes(*type) + " is not computed here, only \"default\"");
      }
    }
    rope->expect_number("partial_rotary_factor", 1);
    rope->expect_number("factor", 1);
    if (const auto theta = rope->number("rope_theta")) config.rope_theta = *theta;
  }
}

// Anything else that would change what the model computes.
void refuse_what_is_not_computed(const ConfigObject& object) {
  const auto type = object.text("model_type");
  if (!type) object.fail("model_type", "is missing");
  if (*type != "llama") object.fail("model_type", "expected \"llama\", got " + io::in_quotes(*type));
  const auto activation = object.text("hidden_act");
  if (activation && *activation != "silu") {
    object.fail("hidden_act", io::in_quotes(*activation) + " is not computed here, only \"silu\"");
  }
  object.expect_number("attention_dropout", 0);
  object.expect_number("partial_rotary_factor", 1);
  if (object.find("quantization_config") != nullptr) {
    object.fail("quantization_config", "quantized weights are not read here");
  }
}

json parse_json(std::string_view text, std::string_view place) {
  try {
    io::refuse_deep_json(text);
    return json::parse(text);
  } catch (const Error& error) {
    throw io::error_at(place, error.what());
  } catch (const json::exception& error) {
    throw io::error_at(place, io::json_error_text(error.what(), text));
  }
}

}  // namespace

LlamaConfig parse_config(std::string_view json_text, std::string_view place) {
  const json document = parse_json(json_text, place);
  if (!document.is_object()) throw io::error_at(place, "expected a JSON object");
  const ConfigObject object(document, std::string(place));
  refuse_what_is_not_computed(object);
  LlamaConfig config;
  config.vocabulary = object.required("vocab_size");
  config.hidden = object.required("hidden_size");
  config.intermediate = object.required("intermediate_size");
  config.layers = object.required("num_hidden_layers");
  config.heads = object.required("num_attention_heads");
  config.key_value_heads = object.whole_number("num_key_value_heads").value_or(config.heads);
  if (const auto head_dim = object.whole_number("head_dim")) {
    config.head_dim = *head_dim;
  } else {
    if (config.heads < 1 || config.hidden % config.heads != 0) {
      object.fail("num_attention_heads", "hidden_size is not a multiple of it, and `head_dim` is missing");
    }
    config.head_dim = config.hidden / config.heads;
  }
  // The defaults are those of transformers.
  config.max_positions = object.whole_number("max_position_embeddings").value_or(2048);
  config.rms_eps = object.number("rms_norm_eps").value_or(1e-6);
  config.rope_theta = object.number("rope_theta").value_or(10000);
  config.initializer_range = object.number("initializer_range").value_or(0.02);
  config.tied_head = object.flag("tie_word_embeddings");
  config.attention_bias = object.flag("attention_bias");
  config.mlp_bias = object.flag("mlp_bias");
  read_rope(object, config);
  try {
    validate(config);
  } catch (const Error& error) {
    throw io::error_at(place, error.what());
  }
  return config;
}

std::string config_json(const LlamaConfig& config, std::string_view dtype) {
  nlohmann::ordered_json document;
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
