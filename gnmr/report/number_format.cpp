// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/number_format.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "gnmr/core/message_text.h"

namespace gnmr::report {

std::string number_text(double value, int digits) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "∞" : "−∞";
  return fmt::format("{:.{}g}", value == 0 ? 0.0 : value, digits);
}

std::string number_text(const std::optional<double>& value) { return value ? number_text(*value) : "–"; }

std::string grouped(std::uint64_t value) {
  std::string text = std::to_string(value);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

std::string short_count(double value) {
  constexpr std::array<const char*, 5> kSuffixes{"", " k", " M", " G", " T"};
  std::size_t suffix = 0;
  while (std::abs(value) >= 1000 && suffix + 1 < kSuffixes.size()) {
    value /= 1000;
    ++suffix;
  }
  return fmt::format("{:.3g}{}", value, kSuffixes[suffix]);
}

std::string percent_text(double share) {
  if (share != 0 && std::abs(share) < 0.001) return fmt::format("{:.1g} %", share * 100);
  return fmt::format("{:.1f} %", share * 100);
}

std::string duration_text(double seconds) {
  if (!(seconds < 1e12)) return number_text(seconds) + " s";
  if (seconds < 60) return fmt::format("{:.3g} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::lround(seconds));
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string counted(std::uint64_t count, std::string_view one, std::string_view many) {
  return grouped(count) + " " + noun_for(count, one, many);
}

}  // namespace gnmr::report
