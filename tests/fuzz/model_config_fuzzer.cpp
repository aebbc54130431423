// SPDX-License-Identifier: Apache-2.0
// Any bytes are a model's config or an error; a config that was read is valid and survives writing.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "gnmr/core/error.h"
#include "gnmr/models/llama_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gnmr::models;
  LlamaConfig config;
  try {
    config = parse_config({reinterpret_cast<const char*>(data), size}, "input");
  } catch (const gnmr::Error&) {
    return 0;
  }
  validate(config);
  if (parse_config(config_json(config), "written") != config) std::abort();
  return 0;
}
