// SPDX-License-Identifier: Apache-2.0
#include "gnmr/models/llama_config.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <string>

#include "gnmr/core/error.h"
#include "gnmr/core/message_text.h"
#include "gnmr/io/json_text.h"

namespace gnmr::models {
namespace {

struct Preset {
  std::string_view name;
  LlamaConfig config;
};

// Bytes are the vocabulary where none is given.
constexpr std::array<Preset, 7> kPresets{{
    {"nano", {}},
    {"micro", {.hidden = 384, .intermediate = 1024, .layers = 8, .heads = 6, .key_value_heads = 6, .head_dim = 64}},
    {"small", {.hidden = 768, .intermediate = 2048, .layers = 16, .heads = 12, .key_value_heads = 12, .head_dim = 64}},
    {"stories15M",
     {.vocabulary = 32000,
      .hidden = 288,
      .intermediate = 768,
      .layers = 6,
      .heads = 6,
      .key_value_heads = 6,
      .head_dim = 48,
      .max_positions = 256,
      .tied_head = true}},
    {"tinyllama-1.1b",
     {.vocabulary = 32000,
      .hidden = 2048,
      .intermediate = 5632,
      .layers = 22,
      .heads = 32,
      .key_value_heads = 4,
      .head_dim = 64,
      .max_positions = 2048}},
    {"llama2-7b",
     {.vocabulary = 32000,
      .hidden = 4096,
      .intermediate = 11008,
      .layers = 32,
      .heads = 32,
      .key_value_heads = 32,
      .head_dim = 128,
      .max_positions = 4096}},
    {"llama2-13b",
     {.vocabulary = 32000,
      .hidden = 5120,
      .intermediate = 13824,
      .layers = 40,
      .heads = 40,
      .key_value_heads = 40,
      .head_dim = 128,
      .max_positions = 4096}},
}};

[[noreturn]] void fail(const std::string& message) { throw Error("[model] " + message); }

constexpr std::int64_t kLargestSize = std::int64_t{1} << 24;
constexpr double kMostParameters = 1e15;  // sizes are multiplied with each other; below this nothing overflows

template <class Number>
Number count_parameters(const LlamaConfig& config) {
  const Number hidden = static_cast<Number>(config.hidden);
  const Number intermediate = static_cast<Number>(config.intermediate);
  const Number queries = static_cast<Number>(config.heads) * static_cast<Number>(config.head_dim);
  const Number keys = static_cast<Number>(config.key_value_heads) * static_cast<Number>(config.head_dim);
  const Number attention =
      hidden * (2 * queries + 2 * keys) + (config.attention_bias ? queries + 2 * keys + hidden : Number{0});
  const Number mlp = 3 * hidden * intermediate + (config.mlp_bias ? 2 * intermediate + hidden : Number{0});
  const Number embedding = static_cast<Number>(config.vocabulary) * hidden;
  return (config.tied_head ? 1 : 2) * embedding + static_cast<Number>(config.layers) * (attention + mlp + 2 * hidden) +
         hidden;
}

void expect_size(std::string_view what, std::int64_t value) {
  if (value >= 1 && value <= kLargestSize) return;
  fail(std::string(what) + ": expected 1 to " + std::to_string(kLargestSize) + ", got " + std::to_string(value));
}

void expect_positive(std::string_view what, double value) {
  if (std::isfinite(value) && value > 0) return;
  fail(std::string(what) + ": expected a positive number, got " + std::to_string(value));
}

std::string known_presets() {
  std::string list;
  for (const Preset& preset : kPresets) list += (list.empty() ? "" : ", ") + std::string(preset.name);
  return list;
}

}  // namespace

void validate(const LlamaConfig& config) {
  expect_size("vocabulary", config.vocabulary);
  expect_size("hidden", config.hidden);
  expect_size("intermediate", config.intermediate);
  expect_size("layers", config.layers);
  expect_size("heads", config.heads);
  expect_size("key_value_heads", config.key_value_heads);
  expect_size("head_dim", config.head_dim);
  expect_size("max_positions", config.max_positions);
  expect_positive("rms_eps", config.rms_eps);
  expect_positive("rope_theta", config.rope_theta);
  if (!std::isfinite(config.initializer_range) || config.initializer_range < 0) {
    fail("initializer_range: expected 0 or more, got " + std::to_string(config.initializer_range));
  }
  if (config.heads % config.key_value_heads != 0) {
    fail("heads: expected a multiple of key_value_heads, " + std::to_string(config.key_value_heads) + ", got " +
         std::to_string(config.heads));
  }
  if (config.head_dim % 2 != 0) {
    fail("head_dim: expected an even number, because pairs are rotated, got " + std::to_string(config.head_dim));
  }
  if (const double parameters = count_parameters<double>(config); parameters > kMostParameters) {
    fail("these sizes make a model of more than 1e15 parameters");
  }
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

LlamaConfig preset_config(std::string_view name) {
  for (const Preset& preset : kPresets) {
    if (preset.name == name) return preset.config;
  }
  fail("no preset is called " + io::in_quotes(name) + "; there are " + known_presets() +
       did_you_mean(name, kPresets, [](const Preset& preset) { return std::string_view(preset.name); }));
}

std::int64_t parameter_count(const LlamaConfig& config) { return count_parameters<std::int64_t>(config); }

std::int64_t multiply_adds_per_token(const LlamaConfig& config, std::int64_t sequence_length) {
  const std::int64_t queries = config.heads * config.head_dim;
  const std::int64_t keys = config.key_value_heads * config.head_dim;
  const std::int64_t linear = config.hidden * (2 * queries + 2 * keys + 3 * config.intermediate);
  // The n-th of S tokens looks at n: (S + 1) / 2 in the mean, in each of the two GEMMs.
  const std::int64_t attention = queries * (sequence_length + 1);
  return config.layers * (linear + attention) + config.vocabulary * config.hidden;
}

}  // namespace gnmr::models
