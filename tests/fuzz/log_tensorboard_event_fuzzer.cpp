// SPDX-License-Identifier: Apache-2.0
// The inside of a record: checksums keep a fuzzer of whole files from reaching it.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "gnmr/core/error.h"
#include "gnmr/io/tensorboard_records.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gnmr::io::Event event;
  try {
    gnmr::io::read_event(std::string_view(reinterpret_cast<const char*>(data), size), event);
  } catch (const gnmr::Error&) {
  }
  return 0;
}
