// SPDX-License-Identifier: Apache-2.0
#include "gnmr/models/llama_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "gnmr/core/error.h"
#include "io/temporary_folder.h"

namespace gnmr::models {
namespace {

using nlohmann::json;
using test::error_of;

json smallest() {
  return {{"model_type", "llama"},   {"vocab_size", 10},       {"hidden_size", 8},
          {"intermediate_size", 16}, {"num_hidden_layers", 2}, {"num_attention_heads", 2}};
}

LlamaConfig parse(const json& document) { return parse_config(document.dump(), "config.json"); }

std::string config_refusal(const json& changes) {
  json document = smallest();
  document.update(changes);
  return error_of<Error>([&] { parse(document); });
}

TEST(LlamaConfig, DefaultsAreThoseOfTransformers) {
  const LlamaConfig config = parse(smallest());
  EXPECT_EQ(config.key_value_heads, 2);
  EXPECT_EQ(config.head_dim, 4);
  EXPECT_EQ(config.max_positions, 2048);
  EXPECT_EQ(config.rms_eps, 1e-6);
  EXPECT_EQ(config.rope_theta, 10000);
  EXPECT_EQ(config.initializer_range, 0.02);
  EXPECT_FALSE(config.tied_head || config.attention_bias || config.mlp_bias);
}

TEST(LlamaConfig, ReadsWhatItWrote) {
  for (const std::string& name : preset_names()) {
    EXPECT_EQ(parse_config(config_json(preset_config(name)), name), preset_config(name)) << name;
    EXPECT_NO_THROW(validate(preset_config(name))) << name;
  }
  LlamaConfig config = preset_config("nano");
  config.key_value_heads = 1;
  config.head_dim = 20;
  config.tied_head = config.attention_bias = config.mlp_bias = true;
  config.rope_theta = 5e5;
  config.rms_eps = 1e-6;
  config.initializer_range = 0.01;
  EXPECT_EQ(parse_config(config_json(config), "x"), config);
}

TEST(LlamaConfig, ReadsBothFormsOfTheTheta) {
  json document = smallest();
  document["rope_theta"] = 2e4;
  EXPECT_EQ(parse(document).rope_theta, 2e4);
  document.erase("rope_theta");
  document["rope_parameters"] = {{"rope_theta", 3e4}, {"rope_type", "default"}};
  EXPECT_EQ(parse(document).rope_theta, 3e4);
  document["rope_scaling"] = nullptr;
  document["head_dim"] = nullptr;
  EXPECT_EQ(parse(document).rope_theta, 3e4);
}

TEST(LlamaConfig, RefusesWhatIsNotComputedByItsKey) {
  EXPECT_EQ(config_refusal({{"model_type", "gpt2"}}), "config.json: `model_type`: expected \"llama\", got \"gpt2\"");
  EXPECT_EQ(config_refusal({{"hidden_act", "gelu"}}),
            "config.json: `hidden_act`: \"gelu\" is not computed here, only \"silu\"");
  EXPECT_EQ(config_refusal({{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}),
            "config.json: `rope_scaling.type`: \"linear\" is not computed here, only \"default\"");
  EXPECT_EQ(config_refusal({{"rope_parameters", {{"rope_type", "llama3"}}}}),
            "config.json: `rope_parameters.rope_type`: \"llama3\" is not computed here, only \"default\"");
  EXPECT_NE(config_refusal({{"attention_dropout", 0.1}}).find("`attention_dropout`"), std::string::npos);
  EXPECT_NE(config_refusal({{"quantization_config", json::object()}}).find("`quantization_config`"), std::string::npos);
}

TEST(LlamaConfig, RefusesWrongValuesByTheirKey) {
  EXPECT_EQ(config_refusal({{"vocab_size", nullptr}}), "config.json: `vocab_size` is missing");
  EXPECT_EQ(config_refusal({{"vocab_size", "10"}}),
            "config.json: `vocab_size`: expected a whole number of 64 bits, got string");
  EXPECT_EQ(config_refusal({{"vocab_size", 10.5}}), "config.json: `vocab_size`: expected a whole number, got 10.5");
  EXPECT_EQ(config_refusal({{"vocab_size", 18446744073709551615U}}),
            "config.json: `vocab_size`: expected a whole number of 64 bits, got number");
  EXPECT_EQ(config_refusal({{"tie_word_embeddings", 1}}),
            "config.json: `tie_word_embeddings`: expected true or false, got number");
  EXPECT_EQ(config_refusal({{"num_hidden_layers", 0}}), "config.json: [model] layers: expected 1 to 16777216, got 0");
  EXPECT_NE(config_refusal({{"num_attention_heads", 3}}).find("`num_attention_heads`"), std::string::npos);
  EXPECT_NE(config_refusal({{"num_attention_heads", 0}}).find("`num_attention_heads`"), std::string::npos);
  EXPECT_NE(
      config_refusal({{"num_attention_heads", 4}, {"num_key_value_heads", 3}}).find("multiple of key_value_heads, 3"),
      std::string::npos);
  EXPECT_NE(config_refusal({{"head_dim", 5}}).find("head_dim: expected an even number"), std::string::npos);
  EXPECT_NE(config_refusal({{"rms_norm_eps", 0}}).find("rms_eps: expected a positive number"), std::string::npos);
  EXPECT_EQ(error_of<Error>([] { parse_config("{", "x"); }),
            "x: not JSON: column 2: unexpected end of input; expected string literal");
  EXPECT_EQ(error_of<Error>([] { parse_config("[]", "x"); }), "x: expected a JSON object, got array");
  EXPECT_EQ(error_of<Error>([] { parse_config("{\"a\":1e999}", "x"); }),
            "x: not JSON: the number \"1e999\" is too large");
}

TEST(LlamaConfig, LoadsByNameFileAndFolder) {
  EXPECT_EQ(load_config("llama2-13b"), preset_config("llama2-13b"));
  const test::TemporaryFolder folder;
  test::put_file(folder.file("config.json"), config_json(preset_config("micro")));
  EXPECT_EQ(load_config(folder.file("config.json")), preset_config("micro"));
  EXPECT_EQ(load_config(folder.file("")), preset_config("micro"));
  EXPECT_NE(error_of<Error>([] { load_config("pico"); }).find("\"pico\" is neither a preset (nano, micro"),
            std::string::npos);
  EXPECT_TRUE(error_of<Error>([] { preset_config("mirco"); }).ends_with("; did you mean 'micro'?"));
  EXPECT_NE(error_of<Error>([] { preset_config("pico"); }).find("there are nano, micro"), std::string::npos);
}

TEST(LlamaConfig, CountsAreThoseThatArePublished) {
  EXPECT_EQ(parameter_count(preset_config("llama2-7b")), 6'738'415'616);
  EXPECT_EQ(parameter_count(preset_config("llama2-13b")), 13'015'864'320);
  EXPECT_EQ(parameter_count(preset_config("tinyllama-1.1b")), 1'100'048'384);
  EXPECT_EQ(parameter_count(preset_config("stories15M")), 15'191'712);
  // By hand: 16 blocks of 4 * 768^2 + 3 * 768 * 2048 + 2 * 768, twice 256 * 768, 768.
  EXPECT_EQ(parameter_count(preset_config("small")), 113'664'768);
}

TEST(LlamaConfig, MultiplyAddsAreCountedByHand) {
  LlamaConfig config = preset_config("nano");
  config.layers = 1;
  // q, k, v, o, gate, up, down, head; and 64.5 tokens in the mean in two products of 96.
  EXPECT_EQ(multiply_adds_per_token(config, 128), 4 * 96 * 96 + 3 * 96 * 256 + 96 * 256 + 129 * 96);
}

}  // namespace
}  // namespace gnmr::models
