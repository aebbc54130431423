// SPDX-License-Identifier: Apache-2.0
// Any bytes are options or an error; options that were read are valid and survive writing.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "gnmr/core/error.h"
#include "gnmr/io/options_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gnmr::Options options;
  try {
    options = gnmr::io::read_options({reinterpret_cast<const char*>(data), size});
  } catch (const gnmr::Error&) {
    return 0;
  }
  gnmr::validate(options);
  if (gnmr::io::read_options(gnmr::io::write_options(options)) != options) std::abort();
  return 0;
}
