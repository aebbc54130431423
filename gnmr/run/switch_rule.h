// SPDX-License-Identifier: Apache-2.0
// One rule of the switchboard: which path units take in which steps, whatever a detector says.
//
//   *.mlp.*=high         blocks.0.*=low@100:      head=high@20:40      *=high@:10
//
// Goals: a message that shows what a rule looks like. Non-goals: which units there are.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gnmr::run {

/// The two paths of a unit.
enum class Path : std::uint8_t { low, high };

/// Sends the units whose names fit a glob (gnmr/io/glob.h) to one path in some steps.
struct SwitchRule {
  std::string glob;
  Path path = Path::high;
  std::int64_t first_step = 1;  // from 1, both included
  std::int64_t last_step = std::numeric_limits<std::int64_t>::max();

  /// Whether the rule says something of that unit in that step.
  bool applies(std::string_view name, std::int64_t step) const;

  bool operator==(const SwitchRule&) const = default;
};

/// Reads `GLOB=high`, `GLOB=low`, each with `@A:B`, `@A:` or `@:B` behind it; an `Error` shows the forms. What stands
/// before the last `=` is the glob.
SwitchRule parse_switch_rule(std::string_view text);

/// Reads several.
std::vector<SwitchRule> parse_switch_rules(const std::vector<std::string>& texts);

/// The path that the last rule that applies asks for; none where no rule does.
std::optional<Path> forced_path(std::span<const SwitchRule> rules, std::string_view name, std::int64_t step);

}  // namespace gnmr::run
