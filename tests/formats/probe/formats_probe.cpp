// SPDX-License-Identifier: Apache-2.0
// Casts what comes on standard input, for tests in other languages.
//
//   formats_probe encode FORMAT nearest|stochastic saturate|non_finite [SEED]   float32 in, codes out
//   formats_probe decode FORMAT                                                 codes in, float32 out
//
// Numbers are raw and in the machine's order; codes are bytes, those of bfloat16 two bytes each.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "gnmr/formats/cast.h"

namespace {

using namespace gnmr::formats;

template <class Number>
std::vector<Number> read_all() {
  std::vector<Number> numbers;
  Number buffer[4096];
  for (std::size_t count = 0; (count = std::fread(buffer, sizeof(Number), std::size(buffer), stdin)) > 0;) {
    numbers.insert(numbers.end(), buffer, buffer + count);
  }
  return numbers;
}

template <class Number>
int write_all(const std::vector<Number>& numbers) {
  return std::fwrite(numbers.data(), sizeof(Number), numbers.size(), stdout) == numbers.size() ? 0 : 1;
}

int run_encode(const Cast& cast) {
  const std::vector<float> values = read_all<float>();
  if (cast.format == Format::bfloat16) {
    std::vector<std::uint16_t> codes(values.size());
    encode_bfloat16(cast, values, codes);
    return write_all(codes);
  }
  std::vector<std::uint8_t> codes(values.size());
  encode(cast, values, codes);
  return write_all(codes);
}

int run_decode(Format format) {
  std::vector<float> values;
  if (format == Format::bfloat16) {
    const std::vector<std::uint16_t> codes = read_all<std::uint16_t>();
    values.resize(codes.size());
    decode_bfloat16(codes, values);
  } else {
    const std::vector<std::uint8_t> codes = read_all<std::uint8_t>();
    values.resize(codes.size());
    decode(format, codes, values);
  }
  return write_all(values);
}

}  // namespace

int main(int argument_count, char** arguments) {
  const std::vector<std::string> words(arguments, arguments + argument_count);
  const auto format = words.size() > 2 ? find_format(words[2]) : std::nullopt;
  if (format && words[1] == "decode") return run_decode(*format);
  if (format && words[1] == "encode" && words.size() > 4) {
    Cast cast{.format = *format};
    if (words[3] == "stochastic") cast.rounding = Rounding::stochastic;
    if (words[4] == "non_finite") cast.overflow = Overflow::non_finite;
    if (words.size() > 5) cast.seed = std::strtoull(words[5].c_str(), nullptr, 10);
    return run_encode(cast);
  }
  std::fprintf(stderr, "usage: formats_probe encode FORMAT ROUNDING OVERFLOW [SEED] | decode FORMAT\n");
  return 2;
}
