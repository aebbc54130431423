// SPDX-License-Identifier: Apache-2.0
#include "abuse/damage.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "io/temporary_folder.h"

namespace gnmr::abuse {
namespace {

constexpr std::size_t kLongestBlock = 64;

Damage flip_bit(std::string& bytes, Dice& dice) {
  const std::size_t at = dice.below(bytes.size());
  const auto bit = static_cast<unsigned>(dice.below(8));
  bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ (1U << bit));
  return {"bit flip", fmt::format("bit {} of byte {}", bit, at)};
}

Damage change_byte(std::string& bytes, Dice& dice) {
  const std::size_t at = dice.below(bytes.size());
  const auto value = static_cast<unsigned char>(dice.below(256));
  bytes[at] = static_cast<char>(value);
  return {"byte change", fmt::format("byte {} is {}", at, value)};
}

Damage truncate(std::string& bytes, Dice& dice) {
  bytes.resize(dice.below(bytes.size()));
  return {"truncation", fmt::format("{} bytes are left", bytes.size())};
}

Damage insert(std::string& bytes, Dice& dice) {
  const std::size_t at = dice.below(bytes.size() + 1);
  const std::size_t size = 1 + dice.below(kLongestBlock);
  std::string block;
  for (std::size_t i = 0; i < size; ++i) block += static_cast<char>(dice.below(256));
  bytes.insert(at, block);
  return {"insertion", fmt::format("{} bytes at {}", size, at)};
}

Damage remove_block(std::string& bytes, Dice& dice) {
  const std::size_t at = dice.below(bytes.size());
  const std::size_t size = 1 + dice.below(kLongestBlock);
  bytes.erase(at, size);
  return {"removed block", fmt::format("{} bytes at {}", size, at)};
}

Damage duplicate_block(std::string& bytes, Dice& dice) {
  const std::size_t at = dice.below(bytes.size());
  const std::size_t size = 1 + dice.below(std::max<std::size_t>(bytes.size() / 4, 1));
  const std::string block = bytes.substr(at, size);
  bytes.insert(at, block);
  return {"duplicate block", fmt::format("{} bytes at {}", block.size(), at)};
}

Damage fill_with_zeros(std::string& bytes, Dice& dice) {
  const std::size_t at = dice.below(bytes.size());
  // As a block of the disk that was never written, or to the end.
  const std::size_t size = dice.once_in(3) ? bytes.size() - at : 1 + dice.below(512);
  const std::size_t end = std::min(bytes.size(), at + size);
  std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.begin() + static_cast<std::ptrdiff_t>(end), '\0');
  return {"zero fill", fmt::format("bytes {} to {}", at, end)};
}

/// Another number in the place of one that is written in digits.
Damage giant_number(std::string& bytes, Dice& dice) {
  const auto is_digit = [](char character) { return character >= '0' && character <= '9'; };
  const auto from = bytes.begin() + static_cast<std::ptrdiff_t>(dice.below(bytes.size()));
  auto begin = std::find_if(from, bytes.end(), is_digit);
  if (begin == bytes.end()) begin = std::find_if(bytes.begin(), bytes.end(), is_digit);
  if (begin == bytes.end()) return flip_bit(bytes, dice);
  const auto end = std::find_if_not(begin, bytes.end(), is_digit);
  static const std::vector<std::string> numbers{"99999999999999999999",
                                                "9223372036854775807",
                                                "4294967296",
                                                "2147483648",
                                                "1e999",
                                                "1e300",
                                                "-1",
                                                "-9223372036854775808",
                                                "0",
                                                "NaN",
                                                "1000000000"};
  const std::string& number = dice.one_of(numbers);
  const auto at = begin - bytes.begin();
  bytes.replace(begin, end, number);
  return {"giant number", fmt::format("{} at byte {}", number, at)};
}

/// Four or eight bytes that may be a length become an extreme one; most lengths are near the beginning.
Damage change_length(std::string& bytes, Dice& dice) {
  const std::size_t width = dice.once_in(2) ? 4 : 8;
  if (bytes.size() < width) return change_byte(bytes, dice);
  const std::size_t places = bytes.size() - width + 1;
  const std::size_t at = dice.below(dice.once_in(2) ? std::min<std::size_t>(places, 64) : places) / 4 * 4;
  static const std::vector<std::uint64_t> lengths{~std::uint64_t{0},
                                                  std::uint64_t{1} << 63U,
                                                  std::uint64_t{1} << 31U,
                                                  0x7FFFFFFFFFFFFFFFU,
                                                  0xFFFFFFFFU,
                                                  std::uint64_t{1} << 40U,
                                                  0,
                                                  1};
  const std::uint64_t length = dice.one_of(lengths);
  std::memcpy(bytes.data() + at, &length, width);  // machines that train are little-endian, as the files are
  return {"length field", fmt::format("{:#x} in {} bytes at {}", length, width, at)};
}

/// What a reader that calls itself for every bracket does not survive.
Damage nest_deeply(std::string& bytes, Dice& dice) {
  const std::size_t at = dice.below(bytes.size() + 1);
  const std::size_t depth = dice.once_in(2) ? 1000 : 200'000;
  bytes.insert(at, std::string(depth, dice.once_in(2) ? '[' : '{'));
  return {"nesting", fmt::format("{} brackets at {}", depth, at)};
}

Damage swap_lines(std::string& bytes, Dice& dice) {
  const std::size_t first = bytes.find('\n', dice.below(bytes.size()));
  const std::size_t second = first == std::string::npos ? first : bytes.find('\n', first + 1);
  const std::size_t third = second == std::string::npos ? second : bytes.find('\n', second + 1);
  if (third == std::string::npos) return remove_block(bytes, dice);
  const std::string line = bytes.substr(first, second - first);
  bytes.erase(first, line.size());
  bytes.insert(first + (third - second), line);
  return {"swapped lines", fmt::format("at byte {}", first)};
}

/// What leaves no bytes to look at.
Damage replace_file(const std::string& path, Dice& dice) {
  const std::size_t which = dice.below(3);
  ::unlink(path.c_str());
  if (which == 0) return {"missing file", "removed"};
  if (which == 1) {
    ::mkdir(path.c_str(), 0777);
    return {"folder in its place", "a folder has its name"};
  }
  test::put_file(path, "");
  return {"empty file", "no byte is left"};
}

}  // namespace

Damage damage_file(const std::string& path, Dice& dice) {
  std::string bytes = test::content_of(path);
  if (bytes.empty() || dice.once_in(16)) return replace_file(path, dice);
  using Kind = Damage (*)(std::string&, Dice&);
  // A flipped bit is what checksums are for, so it comes more often.
  static constexpr std::array<Kind, 14> kKinds{
      flip_bit,     flip_bit,     flip_bit,     change_byte,     change_byte,   truncate,        insert,
      remove_block, giant_number, giant_number, duplicate_block, change_length, fill_with_zeros, swap_lines};
  const Damage damage = dice.once_in(40) ? nest_deeply(bytes, dice) : kKinds[dice.below(kKinds.size())](bytes, dice);
  test::put_file(path, bytes);
  return damage;
}

}  // namespace gnmr::abuse
