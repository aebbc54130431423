// SPDX-License-Identifier: Apache-2.0
// All console formats share one reader, so each input is read as each of them.
#include "fuzz/trace_fuzzing.h"
#include "gnmr/io/log_console.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (const gnmr::io::ConsoleFormat& format : gnmr::io::console_formats()) {
    gnmr::io::fuzzing::read_as(format.format, data, size);
  }
  return 0;
}
