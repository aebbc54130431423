// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "gnmr/kernels/read_floor.h"

namespace gnmr::kernels {

std::uint32_t reference_fold(const void* data, std::size_t bytes) {
  const auto* const from = static_cast<const std::byte*>(data);
  std::uint32_t folded = 0;
  for (std::size_t i = 0; i < bytes / 16 * 16; i += sizeof folded) {
    std::uint32_t word;
    std::memcpy(&word, from + i, sizeof word);
    folded ^= word;
  }
  return folded;
}

}  // namespace gnmr::kernels
