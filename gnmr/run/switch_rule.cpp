// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/switch_rule.h"

#include <fmt/format.h>

#include "gnmr/core/error.h"
#include "gnmr/io/glob.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/number_text.h"

namespace gnmr::run {
namespace {

[[noreturn]] void refuse_rule(std::string_view text, std::string_view what) {
  throw Error(fmt::format("{}: {}; a rule is GLOB=high or GLOB=low, with @A:B, @A: or @:B for steps A to B",
                          io::in_quotes(text), what));
}

void read_step(std::string_view digits, std::string_view text, std::int64_t& step) {
  if (digits.empty()) return;  // that side is open
  if (!io::is_digit(digits[0]) || !io::parse_whole(digits, step) || step < 1) {
    refuse_rule(text, fmt::format("expected a step from 1 on, got {}", io::in_quotes(digits)));
  }
}

void read_steps(std::string_view steps, std::string_view text, SwitchRule& rule) {
  const std::size_t colon = steps.find(':');
  if (colon == std::string_view::npos) refuse_rule(text, "steps need a `:`");
  if (steps.size() == 1) refuse_rule(text, "there is no step round the `:`");
  read_step(steps.substr(0, colon), text, rule.first_step);
  read_step(steps.substr(colon + 1), text, rule.last_step);
  if (rule.first_step > rule.last_step) {
    refuse_rule(text, fmt::format("step {} comes after step {}", rule.first_step, rule.last_step));
  }
}

}  // namespace

bool SwitchRule::applies(std::string_view name, std::int64_t step) const {
  return step >= first_step && step <= last_step && io::glob_matches(glob, name);
}

SwitchRule parse_switch_rule(std::string_view text) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string_view::npos) refuse_rule(text, "there is no `=`");
  SwitchRule rule;
  rule.glob = text.substr(0, equals);
  if (rule.glob.empty()) refuse_rule(text, "there is nothing before the `=`");
  std::string_view path = text.substr(equals + 1);
  const std::size_t at = path.find('@');
  if (at != std::string_view::npos) {
    read_steps(path.substr(at + 1), text, rule);
    path = path.substr(0, at);
  }
  if (path != "high" && path != "low")
    refuse_rule(text, fmt::format("expected high or low, got {}", io::in_quotes(path)));
  rule.path = path == "high" ? Path::high : Path::low;
  return rule;
}

std::vector<SwitchRule> parse_switch_rules(const std::vector<std::string>& texts) {
  std::vector<SwitchRule> rules;
  for (const std::string& text : texts) rules.push_back(parse_switch_rule(text));
  return rules;
}

std::optional<Path> forced_path(std::span<const SwitchRule> rules, std::string_view name, std::int64_t step) {
  for (auto rule = rules.rbegin(); rule != rules.rend(); ++rule) {
    if (rule->applies(name, step)) return rule->path;
  }
  return std::nullopt;
}

}  // namespace gnmr::run
