// SPDX-License-Identifier: Apache-2.0
// Any bytes are a header or an error; a header that was read describes all of the data once, and survives writing.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "gnmr/core/error.h"
#include "gnmr/models/safetensors_header.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gnmr::models;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  SafetensorsHeader header;
  std::uint64_t data_bytes = 0;
  try {
    const std::uint64_t length = header_length(bytes, size, "input");
    data_bytes = size - kHeaderLengthBytes - length;
    header = parse_safetensors_header(bytes.substr(kHeaderLengthBytes, length), data_bytes, "input");
  } catch (const gnmr::Error&) {
    return 0;
  }
  std::uint64_t at = 0;
  for (const StoredTensor& tensor : header.tensors) {
    if (tensor.begin != at || tensor.end < at) std::abort();
    at = tensor.end;
  }
  if (at != data_bytes) std::abort();
  const std::string written = safetensors_header_bytes(header);
  if (parse_safetensors_header(written.substr(kHeaderLengthBytes), data_bytes, "input") != header) std::abort();
  return 0;
}
