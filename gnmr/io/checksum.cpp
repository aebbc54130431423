// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/checksum.h"

#include <array>
#include <cstddef>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#include <nmmintrin.h>
#define GNMR_HAVE_SSE42_CRC
#endif

namespace gnmr::io {
namespace {

constexpr std::uint64_t kPolynomial64 = 0xC96C5795D7870F42U;
constexpr std::uint32_t kPolynomial32c = 0x82F63B78U;
constexpr std::size_t kLanes = 8;

template <typename Word>
using Table = std::array<Word, 256>;

// tables[j][b]: what byte b does to the remainder when j more bytes follow it.
template <typename Word>
constexpr std::array<Table<Word>, kLanes> make_tables(Word polynomial) {
  std::array<Table<Word>, kLanes> tables{};
  for (std::size_t byte = 0; byte < 256; ++byte) {
    auto remainder = static_cast<Word>(byte);
    for (int bit = 0; bit < 8; ++bit) remainder = (remainder >> 1U) ^ ((remainder & 1U) != 0 ? polynomial : 0);
    tables[0][byte] = remainder;
  }
  for (std::size_t lane = 1; lane < kLanes; ++lane) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const Word shorter = tables[lane - 1][byte];
      tables[lane][byte] = (shorter >> 8U) ^ tables[0][shorter & 0xFFU];
    }
  }
  return tables;
}

constexpr std::array<Table<std::uint64_t>, kLanes> kTables64 = make_tables(kPolynomial64);
constexpr std::array<Table<std::uint32_t>, kLanes> kTables32c = make_tables(kPolynomial32c);

std::uint64_t byte_at(std::string_view bytes, std::size_t at) { return static_cast<unsigned char>(bytes[at]); }

template <typename Word>
Word sliced_remainder(const std::array<Table<Word>, kLanes>& tables, std::string_view bytes, Word remainder) {
  std::size_t at = 0;
  for (; bytes.size() - at >= kLanes; at += kLanes) {
    Word next = 0;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::uint64_t mixed = ((std::uint64_t{remainder} >> (8 * lane)) & 0xFFU) ^ byte_at(bytes, at + lane);
      next ^= tables[kLanes - 1 - lane][mixed];
    }
    remainder = next;
  }
  for (; at < bytes.size(); ++at) {
    remainder = (remainder >> 8U) ^ tables[0][(remainder ^ byte_at(bytes, at)) & 0xFFU];
  }
  return remainder;
}

#ifdef GNMR_HAVE_SSE42_CRC

// The instruction takes three cycles and can begin in each: three stretches are summed beside each other.
constexpr std::size_t kLongStretch = 8192;
constexpr std::size_t kShortStretch = 256;

// a * b modulo the polynomial; the highest bit is the coefficient of 1.
constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = 0x80000000U; bit != 0; bit >>= 1U) {
    if ((a & bit) != 0) product ^= b;
    b = (b >> 1U) ^ ((b & 1U) != 0 ? kPolynomial32c : 0);
  }
  return product;
}

// What `stretch` zero bytes do to a remainder, by each of its four bytes.
constexpr std::array<Table<std::uint32_t>, 4> make_shift(std::size_t stretch) {
  std::uint32_t power = 0x80000000U;
  for (std::size_t bit = 0; bit < 8 * stretch; ++bit) {
    power = (power >> 1U) ^ ((power & 1U) != 0 ? kPolynomial32c : 0);
  }
  std::array<Table<std::uint32_t>, 4> shift{};
  for (std::uint32_t place = 0; place < 4; ++place) {
    for (std::uint32_t byte = 0; byte < 256; ++byte) shift[place][byte] = multiply(power, byte << (8 * place));
  }
  return shift;
}

template <std::size_t kStretch>
std::uint32_t shifted(std::uint32_t remainder) {
  static constexpr std::array<Table<std::uint32_t>, 4> kShift = make_shift(kStretch);
  return kShift[0][remainder & 0xFFU] ^ kShift[1][(remainder >> 8U) & 0xFFU] ^ kShift[2][(remainder >> 16U) & 0xFFU] ^
         kShift[3][remainder >> 24U];
}

std::uint64_t word_at(const char* first) {
  std::uint64_t word = 0;
  std::memcpy(&word, first, sizeof(word));
  return word;
}

template <std::size_t kStretch>
__attribute__((target("sse4.2"))) std::uint32_t sum_stretches(std::string_view& bytes, std::uint32_t remainder) {
  while (bytes.size() >= 3 * kStretch) {
    std::uint64_t first = remainder;
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    const char* at = bytes.data();
    for (const char* const end = at + kStretch; at != end; at += sizeof(std::uint64_t)) {
      first = _mm_crc32_u64(first, word_at(at));
      second = _mm_crc32_u64(second, word_at(at + kStretch));
      third = _mm_crc32_u64(third, word_at(at + 2 * kStretch));
    }
    remainder = shifted<kStretch>(static_cast<std::uint32_t>(first)) ^ static_cast<std::uint32_t>(second);
    remainder = shifted<kStretch>(remainder) ^ static_cast<std::uint32_t>(third);
    bytes.remove_prefix(3 * kStretch);
  }
  return remainder;
}

__attribute__((target("sse4.2"))) std::uint32_t instruction_remainder(std::string_view bytes, std::uint32_t remainder) {
  remainder = sum_stretches<kLongStretch>(bytes, remainder);
  remainder = sum_stretches<kShortStretch>(bytes, remainder);
  for (; bytes.size() >= sizeof(std::uint64_t); bytes.remove_prefix(sizeof(std::uint64_t))) {
    remainder = static_cast<std::uint32_t>(_mm_crc32_u64(remainder, word_at(bytes.data())));
  }
  for (const char byte : bytes) remainder = _mm_crc32_u8(remainder, static_cast<unsigned char>(byte));
  return remainder;
}

#endif

}  // namespace

std::uint64_t crc64(std::string_view bytes, std::uint64_t before) {
  return ~sliced_remainder(kTables64, bytes, ~before);
}

std::uint32_t portable_crc32c(std::string_view bytes, std::uint32_t before) {
  return ~sliced_remainder(kTables32c, bytes, ~before);
}

std::uint32_t crc32c(std::string_view bytes, std::uint32_t before) {
#ifdef GNMR_HAVE_SSE42_CRC
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return ~instruction_remainder(bytes, ~before);
#endif
  return portable_crc32c(bytes, before);
}

}  // namespace gnmr::io
