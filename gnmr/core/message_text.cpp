// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/message_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>

#include "gnmr/core/error.h"

namespace gnmr {
namespace {

// Names are short; what is longer is no slip of the fingers.
constexpr std::size_t kLongest = 64;

char lower(char letter) { return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter; }

// Letters to add, leave out or change, or neighbours to swap, until the texts are equal. Both are at most kLongest.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  using Row = std::array<std::size_t, kLongest + 1>;
  Row before_last{};
  Row last{};
  Row row{};
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0U : 1U)});
      const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last = last;
    last = row;
  }
  return last[b.size()];
}

}  // namespace

std::string_view near_match(std::string_view text, std::span<const std::string_view> known) {
  std::string_view best;
  std::size_t best_distance = kLongest;
  if (text.empty() || text.size() > kLongest) return best;
  for (const std::string_view name : known) {
    if (name.empty() || name.size() > kLongest) continue;
    const std::size_t allowed = std::max<std::size_t>(std::max(text.size(), name.size()) / 3, 1);
    const std::size_t distance = edit_distance(text, name);
    // One letter for another is as far as can be where there is only one.
    if (distance > allowed || distance >= std::max(text.size(), name.size())) continue;
    if (distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view text, std::span<const std::string_view> known) {
  const std::string_view near = near_match(text, known);
  return near.empty() ? std::string() : "; did you mean '" + std::string(near) + "'?";
}

std::string noun_for(std::uint64_t count, std::string_view one, std::string_view many) {
  if (count == 1) return std::string(one);
  return many.empty() ? std::string(one) + "s" : std::string(many);
}

std::string counted(std::uint64_t count, std::string_view one, std::string_view many) {
  return std::to_string(count) + " " + noun_for(count, one, many);
}

std::string shortest_text(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

void reject_step(std::int64_t step, const std::string& what) {
  throw Error("[step " + std::to_string(step) + "] expected " + what);
}

}  // namespace gnmr
