// SPDX-License-Identifier: Apache-2.0
// Damaged forms of a file: what a failing disk, a cut transfer or a wrong program makes of it.
//
// Goals: a function of (content, seed) alone, so that a failure is repeated by its seed; damage where it hurts most, in
// lengths and counts near the start. Non-goals: files, knowledge of any format.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>

namespace gnmr::test {

/// One damaged form of `content`; another one for every seed.
inline std::string corrupted(std::string content, std::uint64_t seed) {
  std::mt19937_64 random(seed * 0x9E3779B97F4A7C15U + 1);
  const auto below = [&random](std::size_t limit) {
    return limit == 0 ? 0 : static_cast<std::size_t>(random() % limit);
  };
  if (content.empty()) return std::string(1 + below(64), static_cast<char>(random()));
  // Half of all damage is in the first bytes, where headers are.
  constexpr std::size_t kHeaderBytes = 64;
  const auto place = [&] {
    return random() % 2 == 0 ? below(std::min(content.size(), kHeaderBytes)) : below(content.size());
  };
  const auto put = [&](std::size_t at, std::string_view bytes) {
    content.replace(at, std::min(bytes.size(), content.size() - at), bytes);
  };
  switch (random() % 9) {
    case 0:  // a bit flips
      content[place()] ^= static_cast<char>(1U << below(8));
      break;
    case 1:  // another byte
      content[place()] = static_cast<char>(random());
      break;
    case 2:  // cut
      content.resize(place());
      break;
    case 3:  // a length that is as large as can be
      put(place(), random() % 2 == 0 ? std::string_view("\xFF\xFF\xFF\xFF") : "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F");
      break;
    case 4: {  // a length that is large, but not absurd
      std::string length(8, '\0');
      length[2 + below(4)] = static_cast<char>(1 + below(127));
      put(place(), std::string_view(length).substr(0, random() % 2 == 0 ? 4 : 8));
      break;
    }
    case 5: {  // a number in a text becomes a large one
      const std::size_t digit = content.find_first_of("0123456789", place());
      const std::string_view large = random() % 2 == 0 ? "4294967295" : "999999999999999999999";
      content.replace(digit == std::string::npos ? place() : digit, 1, large);
      break;
    }
    case 6: {  // a piece is missing
      const std::size_t at = place();
      content.erase(at, 1 + below(std::min<std::size_t>(content.size() - at, 512)));
      break;
    }
    case 7: {  // a piece is there twice
      const std::size_t at = place();
      content.insert(at, content.substr(at, 1 + below(512)));
      break;
    }
    default:  // brackets that never end
      content.insert(place(), std::string(1 + below(20000), random() % 2 == 0 ? '[' : '{'));
      break;
  }
  return content;
}

}  // namespace gnmr::test
