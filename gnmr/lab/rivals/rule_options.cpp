// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/rivals/rule_options.h"

#include <array>
#include <optional>
#include <set>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/core/message_text.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/number_text.h"
#include "gnmr/io/options_json.h"

namespace gnmr::lab {
namespace {

struct Range {
  double lowest;
  double limit;
};

// visitor(name, reference to the value, range, help) for every parameter, in the order of the declaration.
#define GNMR_VISIT(type, name, default_value, lowest, limit, help) \
  visitor(std::string_view(#name), options.name, Range{lowest, limit}, std::string_view(help));
#define GNMR_VISITS(Options, LIST)                           \
  template <class Visitor>                                   \
  void visit_parameters(Options& options, Visitor visitor) { \
    LIST(GNMR_VISIT)                                         \
  }
GNMR_VISITS(ZClipOptions, GNMR_ZCLIP_OPTIONS)
GNMR_VISITS(AdaGcOptions, GNMR_ADAGC_OPTIONS)
GNMR_VISITS(StableSpamOptions, GNMR_STABLE_SPAM_OPTIONS)
GNMR_VISITS(OlmoSkipOptions, GNMR_OLMO_SKIP_OPTIONS)
#undef GNMR_VISITS
#undef GNMR_VISIT

constexpr std::array<std::pair<std::string_view, ZClipTo>, 3> kZClipWords{
    {{"reciprocal", ZClipTo::reciprocal}, {"mean", ZClipTo::mean}, {"max", ZClipTo::max}}};

std::string text_of(double value) {
  std::string text;
  io::append_number(text, value);
  return text;
}

std::string text_of(std::int64_t value) { return std::to_string(value); }

std::string text_of(ZClipTo value) {
  for (const auto& [word, meaning] : kZClipWords) {
    if (meaning == value) return std::string(word);
  }
  return {};
}

/// Sets a value from text; what was expected instead where that is not possible, else nothing.
std::string set_value(double& value, std::string_view text, Range range) {
  double number = 0;
  // Written so that NaN is refused.
  if (io::parse_number(text, number) && number >= range.lowest && number < range.limit) {
    value = number;
    return {};
  }
  return "a number from " + text_of(range.lowest) + ", below " + text_of(range.limit);
}

std::string set_value(std::int64_t& value, std::string_view text, Range range) {
  std::int64_t number = 0;
  const auto lowest = static_cast<std::int64_t>(range.lowest);
  const auto limit = static_cast<std::int64_t>(range.limit);
  if (io::parse_whole(text, number) && number >= lowest && number < limit) {
    value = number;
    return {};
  }
  return "a whole number from " + text_of(lowest) + ", below " + text_of(limit);
}

std::string set_value(ZClipTo& value, std::string_view text, Range) {
  for (const auto& [word, meaning] : kZClipWords) {
    if (word != text) continue;
    value = meaning;
    return {};
  }
  return "reciprocal, mean or max";
}

/// Every rule with its defaults.
template <std::size_t... index>
std::array<RuleOptions, sizeof...(index)> make_all_rules(std::index_sequence<index...>) {
  return {RuleOptions(std::in_place_index<index>)...};
}

auto all_rules() { return make_all_rules(std::make_index_sequence<std::variant_size_v<RuleOptions>>()); }

std::string_view name_of(const RuleOptions& options) {
  return std::visit([](const auto& rule) { return rule.kRule; }, options);
}

std::optional<RuleOptions> find_rule(std::string_view name) {
  for (const RuleOptions& rule : all_rules()) {
    if (name_of(rule) == name) return rule;
  }
  return std::nullopt;
}

[[noreturn]] void fail(std::string_view text, const std::string& what, const std::string& near = "") {
  std::string message = io::in_quotes(text) + ": " + what + "; a rule is NAME or NAME:PARAMETER=VALUE,... of";
  std::string_view separator = " ";
  for (const RuleOptions& rule : all_rules()) {
    message += separator;
    message += rule_text(rule);
    separator = "; ";
  }
  throw Error(message + near);
}

/// Takes the text before the next separator off the front of `rest`.
std::string_view take_until(std::string_view& rest, char separator) {
  const std::size_t at = rest.find(separator);
  const std::string_view taken = rest.substr(0, at);
  rest = at == std::string_view::npos ? std::string_view() : rest.substr(at + 1);
  return taken;
}

/// Sets one parameter of a rule; what is wrong, or nothing.
template <class Options>
std::string set_parameter(Options& options, std::string_view name, std::string_view value) {
  std::vector<std::string_view> known;
  std::optional<std::string> wrong;
  visit_parameters(options, [&](std::string_view candidate, auto& target, Range range, std::string_view) {
    known.push_back(candidate);
    if (candidate != name) return;
    const std::string expected = set_value(target, value, range);
    wrong = expected.empty() ? "" : std::string(name) + ": expected " + expected + ", got " + io::in_quotes(value);
  });
  if (wrong) return *wrong;
  const std::string_view near = near_match(name, known);
  return std::string(Options::kRule) + " has no parameter " + io::in_quotes(name) +
         (near.empty() ? "" : " (did you mean '" + std::string(near) + "'?)");
}

}  // namespace

RuleOptions parse_rule(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  std::optional<RuleOptions> options = find_rule(name);
  if (!options) fail(text, "there is no rule " + io::in_quotes(name), did_you_mean(name, rule_names()));
  if (colon == std::string_view::npos) return *options;
  std::string_view rest = text.substr(colon + 1);
  if (rest.empty() || rest.back() == ',') fail(text, "a parameter is missing at the end");
  std::set<std::string_view> seen;
  while (!rest.empty()) {
    const std::string_view setting = take_until(rest, ',');
    const std::size_t equals = setting.find('=');
    if (equals == std::string_view::npos) fail(text, "expected PARAMETER=VALUE, got " + io::in_quotes(setting));
    const std::string_view parameter = setting.substr(0, equals);
    if (!seen.insert(parameter).second) fail(text, io::in_quotes(parameter) + " is given twice");
    const std::string wrong =
        std::visit([&](auto& rule) { return set_parameter(rule, parameter, setting.substr(equals + 1)); }, *options);
    if (!wrong.empty()) fail(text, wrong);
  }
  return *options;
}

std::vector<std::string_view> rule_names() {
  std::vector<std::string_view> names;
  for (const RuleOptions& rule : all_rules()) names.push_back(name_of(rule));
  return names;
}

std::string rule_text(const RuleOptions& options) {
  std::string text(name_of(options));
  char separator = ':';
  const auto append = [&](std::string_view name, const auto& value, Range, std::string_view) {
    text += separator;
    text.append(name).append("=").append(text_of(value));
    separator = ',';
  };
  std::visit([&](auto rule) { visit_parameters(rule, append); }, options);
  return text;
}

std::string rule_markdown(std::string_view name) {
  std::optional<RuleOptions> options = find_rule(name);
  if (!options) fail(name, "there is no such rule");
  std::string list;
  const auto append = [&](std::string_view parameter, const auto& value, Range, std::string_view help) {
    std::string item = "`";
    item.append(parameter).append("` = ").append(text_of(value)).append(": ").append(help);
    list += io::markdown_item(item);
  };
  std::visit([&](auto& rule) { visit_parameters(rule, append); }, *options);
  return list;
}

}  // namespace gnmr::lab
