// SPDX-License-Identifier: Apache-2.0
// Any bytes with a right checksum behind them are a manifest or an error; a manifest that was read survives writing.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "gnmr/core/error.h"
#include "gnmr/io/checksum.h"
#include "gnmr/io/checksum_manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gnmr::io;
  std::string text(reinterpret_cast<const char*>(data), size);
  char digits[9];
  std::snprintf(digits, sizeof(digits), "%08x", crc32c(text));
  text += "  \"crc32c\": \"" + std::string(digits) + "\"\n}\n";
  FolderSums sums;
  try {
    sums = parse_checksums(text);
  } catch (const gnmr::Error&) {
    return 0;
  }
  if (parse_checksums(write_checksums(sums)) != sums) std::abort();
  return 0;
}
