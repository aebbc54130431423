// SPDX-License-Identifier: Apache-2.0
// Models in the layout of llama2.c's first version: seven numbers, then every weight in a fixed order.
//
// Weights are float32, with or without the tables of the rotary embedding behind them, or bfloat16 without; which one
// it is follows from the size of the file. Queries and keys are stored for pairs of neighbours, and are put in the
// order of Hugging Face's halves.
//
// Goals: a really pretrained model in a small file. Non-goals: writing it, later versions, tokenizers.
#pragma once

#include <string>
#include <string_view>

#include "gnmr/models/llama_config.h"
#include "gnmr/models/safetensors.h"

namespace gnmr::models {

/// By this ending of a path the layout is known: its files have no other mark.
inline constexpr std::string_view kLlama2cExtension = ".bin";

/// The config of such a file; its size has been found right.
LlamaConfig read_llama2c_config(const std::string& path);

/// The weights of such a file, under the names that Hugging Face has for them; float32 or bfloat16 as they are stored.
NamedTensors read_llama2c_weights(const std::string& path);

}  // namespace gnmr::models
