// SPDX-License-Identifier: Apache-2.0
#include "fuzz/trace_fuzzing.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return gnmr::io::fuzzing::read_as(gnmr::io::TraceFormat::lightning_csv, data, size);
}
