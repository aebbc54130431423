// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/journal.h"

#include <array>

namespace gnmr::io {
namespace {

constexpr std::array<std::string_view, 7> kEventNames{"risk",     "admitted", "denied", "futile",
                                                      "released", "standing", "filling"};
constexpr std::array<std::string_view, 3> kGemmNames{"forward", "input_gradient", "weight_gradient"};
constexpr std::array<std::string_view, 3> kModeNames{"armed", "watch", "high"};

template <typename Kind, std::size_t count>
std::optional<Kind> find_kind(const std::array<std::string_view, count>& names, std::string_view name) {
  for (std::size_t i = 0; i < count; ++i) {
    if (names[i] == name) return static_cast<Kind>(i);
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> site_names(const std::vector<std::string>& named, std::uint32_t sites) {
  if (named.size() == sites) return named;
  if (sites == kGemmNames.size()) return {kGemmNames.begin(), kGemmNames.end()};
  std::vector<std::string> names;
  for (std::uint32_t site = 1; site <= sites; ++site) names.push_back("site " + std::to_string(site));
  return names;
}

std::string_view to_string(JournalEventKind kind) { return kEventNames[static_cast<std::size_t>(kind)]; }

std::optional<JournalEventKind> event_kind(std::string_view name) {
  return find_kind<JournalEventKind>(kEventNames, name);
}

std::optional<Mode> mode_kind(std::string_view name) { return find_kind<Mode>(kModeNames, name); }

}  // namespace gnmr::io
