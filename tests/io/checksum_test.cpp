// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/checksum.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace gnmr::io {
namespace {

// One bit at a time, straight from the definition.
template <typename Word>
Word slow_crc(std::string_view bytes, Word polynomial) {
  Word remainder = ~Word{0};
  for (const char byte : bytes) {
    remainder ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      remainder = (remainder & 1U) != 0 ? (remainder >> 1U) ^ polynomial : remainder >> 1U;
    }
  }
  return ~remainder;
}

std::uint64_t slow_crc64(std::string_view bytes) { return slow_crc(bytes, std::uint64_t{0xC96C5795D7870F42U}); }
std::uint32_t slow_crc32c(std::string_view bytes) { return slow_crc(bytes, std::uint32_t{0x82F63B78U}); }

std::string random_bytes(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random() & 0xFFU);
  return bytes;
}

TEST(Checksum, HasThePublishedCheckValue) {
  EXPECT_EQ(crc64("123456789"), 0x995DC9BBDF1939FAU);
  EXPECT_EQ(crc64(""), 0U);
  EXPECT_EQ(crc32c(""), 0U);
  // RFC 3720 has these.
  for (const auto sum : {&crc32c, &portable_crc32c}) {
    EXPECT_EQ(sum("123456789", 0), 0xE3069283U);
    EXPECT_EQ(sum(std::string(32, '\0'), 0), 0x8A9136AAU);
    EXPECT_EQ(sum(std::string(32, '\xff'), 0), 0x62A8AB43U);
  }
}

TEST(Checksum, IsTheSlowOneAtEveryLength) {
  for (std::size_t size = 0; size < 70; ++size) {
    const std::string bytes = random_bytes(size, static_cast<unsigned>(size));
    ASSERT_EQ(crc64(bytes), slow_crc64(bytes)) << size;
    ASSERT_EQ(crc32c(bytes), slow_crc32c(bytes)) << size;
    ASSERT_EQ(portable_crc32c(bytes), slow_crc32c(bytes)) << size;
  }
  // Lengths at which the stretches that are summed beside each other begin, and unaligned ones.
  const std::string bytes = random_bytes(60000, 1);
  for (const std::size_t around : {768U, 1536U, 24576U, 25344U, 49152U}) {
    for (std::size_t size = around - 9; size <= around + 9; ++size) {
      const std::string_view view = std::string_view(bytes).substr(size % 13, size);
      ASSERT_EQ(crc32c(view), slow_crc32c(view)) << size;
      ASSERT_EQ(portable_crc32c(view), slow_crc32c(view)) << size;
    }
  }
}

TEST(Checksum, GoesOnFromAnEarlierOne) {
  const std::string bytes = random_bytes(50, 3);
  const std::string_view view = bytes;
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    ASSERT_EQ(crc64(view.substr(cut), crc64(view.substr(0, cut))), crc64(bytes)) << cut;
    ASSERT_EQ(crc32c(view.substr(cut), crc32c(view.substr(0, cut))), crc32c(bytes)) << cut;
    ASSERT_EQ(portable_crc32c(view.substr(cut), crc32c(view.substr(0, cut))), crc32c(bytes)) << cut;
  }
}

}  // namespace
}  // namespace gnmr::io
