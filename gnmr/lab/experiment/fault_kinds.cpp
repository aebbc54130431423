// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/experiment/fault_kinds.h"

#include <array>
#include <cstddef>

namespace gnmr::lab {
namespace {

constexpr std::string_view kOnce = ":once";

constexpr std::array kKinds{
#define GNMR_FAULT_SPEC(kind, name, site) FaultKindSpec{FaultKind::kind, name, FaultSite::site},
    GNMR_FAULT_KINDS(GNMR_FAULT_SPEC)
#undef GNMR_FAULT_SPEC
};

constexpr std::array<std::string_view, 4> kSites{"before-cast", "cast", "after-cast", "run"};

bool can_be_transient(const FaultKindSpec& spec) { return spec.site != FaultSite::run && !is_reenacted_bug(spec.kind); }

}  // namespace

std::span<const FaultKindSpec> fault_kinds() { return kKinds; }

std::string_view to_string(FaultKind kind) { return kKinds[static_cast<std::size_t>(kind)].name; }

std::string_view to_string(FaultSite site) { return kSites[static_cast<std::size_t>(site)]; }

FaultSite site_of(FaultKind kind) { return kKinds[static_cast<std::size_t>(kind)].site; }

bool is_reenacted_bug(FaultKind kind) {
  return kind == FaultKind::cached_weight || kind == FaultKind::missed_amax || kind == FaultKind::wrong_amax;
}

bool has_measurable_harm(FaultKind kind) { return kind != FaultKind::missed_amax && kind != FaultKind::wrong_amax; }

std::optional<FaultChoice> parse_fault(std::string_view text) {
  const bool transient = text.ends_with(kOnce);
  if (transient) text.remove_suffix(kOnce.size());
  for (const FaultKindSpec& spec : kKinds) {
    if (spec.name != text) continue;
    if (transient && !can_be_transient(spec)) return std::nullopt;
    return FaultChoice{spec.kind, transient};
  }
  return std::nullopt;
}

std::string expected_fault() {
  std::string either;
  std::string lasting;
  for (const FaultKindSpec& spec : kKinds) {
    std::string& names = can_be_transient(spec) ? either : lasting;
    if (!names.empty()) names += ", ";
    names += spec.name;
  }
  return "one of " + either + " (these also with " + std::string(kOnce) + "), " + lasting;
}

}  // namespace gnmr::lab
