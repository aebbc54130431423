// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/checksum.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace gnmr::io {
namespace {

// One bit at a time, straight from the definition.
std::uint64_t slow_crc64(std::string_view bytes) {
  std::uint64_t remainder = ~std::uint64_t{0};
  for (const char byte : bytes) {
    remainder ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      remainder = (remainder & 1U) != 0 ? (remainder >> 1U) ^ 0xC96C5795D7870F42U : remainder >> 1U;
    }
  }
  return ~remainder;
}

std::string random_bytes(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random() & 0xFFU);
  return bytes;
}

TEST(Checksum, HasThePublishedCheckValue) {
  EXPECT_EQ(crc64("123456789"), 0x995DC9BBDF1939FAU);
  EXPECT_EQ(crc64(""), 0U);
}

TEST(Checksum, IsTheSlowOneAtEveryLength) {
  for (std::size_t size = 0; size < 70; ++size) {
    const std::string bytes = random_bytes(size, static_cast<unsigned>(size));
    ASSERT_EQ(crc64(bytes), slow_crc64(bytes)) << size;
  }
}

TEST(Checksum, GoesOnFromAnEarlierOne) {
  const std::string bytes = random_bytes(50, 3);
  const std::string_view view = bytes;
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    ASSERT_EQ(crc64(view.substr(cut), crc64(view.substr(0, cut))), crc64(bytes)) << cut;
  }
}

}  // namespace
}  // namespace gnmr::io
