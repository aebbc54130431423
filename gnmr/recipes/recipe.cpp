// SPDX-License-Identifier: Apache-2.0
#include "gnmr/recipes/recipe.h"

#include <algorithm>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/core/message_text.h"
#include "gnmr/io/json.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/text_error.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/recipes/builtin_recipes.h"

namespace gnmr::recipes {
namespace {

using formats::Format;
using io::Json;

constexpr std::size_t kLargestRecipeBytes = 1 << 20;

constexpr std::array<std::string_view, kProductCount> kProductNames{"forward", "input_gradient", "weight_gradient"};
constexpr std::array<std::string_view, kOperandCount> kOperandNames{"input", "weight", "output_gradient"};
constexpr std::array<std::pair<std::string_view, Grouping>, 8> kGroupings{{{"none", Grouping::none},
                                                                           {"tensor", Grouping::tensor},
                                                                           {"delayed", Grouping::delayed},
                                                                           {"row", Grouping::row},
                                                                           {"tile", Grouping::tile},
                                                                           {"block", Grouping::block},
                                                                           {"mx", Grouping::mx},
                                                                           {"nvfp4", Grouping::nvfp4}}};

std::string text_of(const Json& value, const std::string& where) {
  if (!value.is_string()) throw Error(where + ": expected a string, got " + value.dump());
  return value.get<std::string>();
}

constexpr std::array<std::string_view, 7> kRecipeKeys{"name",     "about",      "input", "weight", "output_gradient",
                                                      "products", "recovers_to"};
constexpr std::array<std::string_view, 10> kRuleKeys{"format",  "scaling",  "rounding", "overflow", "round",
                                                     "history", "interval", "margin",   "choice",   "hadamard"};

Error unknown_key(const std::string& where, std::string_view key, const auto& known) {
  std::string list;
  for (const std::string_view name : known) list += (list.empty() ? "" : ", ") + std::string(name);
  return Error(where + ": unknown key (known: " + list + ")" + did_you_mean(key, known));
}

/// One of several words.
template <class Value, std::size_t kCount>
Value choice_of(const Json& value, const std::string& where,
                const std::array<std::pair<std::string_view, Value>, kCount>& choices) {
  const std::string text = text_of(value, where);
  std::string allowed;
  for (const auto& [name, choice] : choices) {
    if (text == name) return choice;
    allowed += (allowed.empty() ? "" : ", ") + std::string(name);
  }
  throw Error(where + ": expected one of " + allowed + ", got \"" + text + "\"" +
              did_you_mean(text, choices, [](const auto& entry) { return entry.first; }));
}

std::int64_t whole_of(const Json& value, const std::string& where, std::int64_t low, std::int64_t high) {
  // Beyond 64 bits with a sign a number would come out as another one.
  const bool whole = value.is_number_integer() &&
                     (!value.is_number_unsigned() || value.get<std::uint64_t>() <= static_cast<std::uint64_t>(high));
  const bool fits = whole && value.get<std::int64_t>() >= low && value.get<std::int64_t>() <= high;
  if (!fits) {
    throw Error(where + ": expected a whole number from " + std::to_string(low) + " to " + std::to_string(high) +
                ", got " + value.dump());
  }
  return value.get<std::int64_t>();
}

Format format_of(const Json& value, const std::string& where) {
  const std::string text = text_of(value, where);
  const std::optional<Format> format = formats::find_format(text);
  if (!format || *format == Format::e8m0) {
    std::string allowed;
    std::vector<std::string_view> names;
    for (int index = 0; index < formats::kFormatCount; ++index) {
      const auto candidate = static_cast<Format>(index);
      if (candidate == Format::e8m0) continue;
      names.push_back(formats::format_name(candidate));
      allowed += (allowed.empty() ? "" : ", ") + std::string(names.back());
    }
    throw Error(where + ": expected one of " + allowed + ", got \"" + text + "\"" + did_you_mean(text, names));
  }
  return *format;
}

void set_key(CastRule& rule, const std::string& key, const Json& value, const std::string& where) {
  using formats::AmaxChoice;
  using formats::Overflow;
  using formats::Rounding;
  constexpr std::array<std::pair<std::string_view, Rounding>, 2> kRoundings{
      {{"nearest", Rounding::nearest_even}, {"stochastic", Rounding::stochastic}}};
  constexpr std::array<std::pair<std::string_view, Overflow>, 2> kOverflows{
      {{"saturate", Overflow::saturate}, {"non_finite", Overflow::non_finite}}};
  constexpr std::array<std::pair<std::string_view, AmaxChoice>, 2> kChoices{
      {{"largest", AmaxChoice::largest}, {"newest", AmaxChoice::newest}}};
  constexpr std::array<std::pair<std::string_view, bool>, 2> kMxRounds{{{"floor", false}, {"up", true}}};
  if (key == "format") {
    rule.format = format_of(value, where);
  } else if (key == "scaling") {
    rule.grouping = choice_of(value, where, kGroupings);
  } else if (key == "rounding") {
    rule.rounding = choice_of(value, where, kRoundings);
  } else if (key == "overflow") {
    rule.overflow = choice_of(value, where, kOverflows);
  } else if (key == "round") {
    rule.mx_round_up = choice_of(value, where, kMxRounds);
  } else if (key == "history") {
    rule.history_length = static_cast<std::uint32_t>(whole_of(value, where, 1, 65536));
  } else if (key == "interval") {
    rule.update_interval = static_cast<std::uint32_t>(whole_of(value, where, 1, 1 << 30));
  } else if (key == "margin") {
    rule.margin = static_cast<int>(whole_of(value, where, -32, 32));
  } else if (key == "choice") {
    rule.choice = choice_of(value, where, kChoices);
  } else if (key == "hadamard") {
    rule.hadamard = static_cast<std::uint32_t>(whole_of(value, where, 0, 1024));
    if ((rule.hadamard & (rule.hadamard - 1)) != 0) throw Error(where + ": expected a power of two, or 0 for none");
  } else {
    throw unknown_key(where, key, kRuleKeys);
  }
}

/// Keys that mean nothing under the rule's scaling are mistakes, not decoration.
void check_fits(const CastRule& rule, const Json& object, const std::string& where) {
  const auto only_with = [&](const char* key, Grouping grouping, const char* name) {
    if (object.contains(key) && rule.grouping != grouping) {
      throw Error(where + "." + key + ": only with scaling \"" + name + "\"");
    }
  };
  only_with("round", Grouping::mx, "mx");
  for (const char* key : {"history", "interval", "margin", "choice"}) only_with(key, Grouping::delayed, "delayed");
  if (!object.contains("format")) throw Error(where + ": expected a key \"format\"");
  const formats::Layout layout = formats::layout_of(rule.format);
  if (rule.grouping == Grouping::none && rule.format != Format::bfloat16) {
    throw Error(where + ".scaling: \"none\" is for bfloat16; " + std::string(formats::format_name(rule.format)) +
                " needs a scale");
  }
  if (rule.grouping == Grouping::nvfp4 && layout.is_integer) {
    throw Error(where + ".scaling: \"nvfp4\" is for floating-point formats");
  }
}

std::optional<CastRule> parse_rule(const Json& value, const std::string& where) {
  if (value.is_null()) return std::nullopt;
  if (!value.is_object()) throw Error(where + ": expected an object or null, got " + value.dump());
  CastRule rule;
  for (const auto& [key, entry] : value.items()) set_key(rule, key, entry, where + "." + key);
  check_fits(rule, value, where);
  return rule;
}

std::optional<std::size_t> index_of(std::string_view name, const auto& names) {
  for (std::size_t index = 0; index < names.size(); ++index) {
    if (names[index] == name) return index;
  }
  return std::nullopt;
}

void set_operand_everywhere(Recipe& recipe, Operand operand, const std::optional<CastRule>& rule) {
  for (std::size_t product = 0; product < kProductCount; ++product) {
    const auto operands = operands_of(static_cast<Product>(product));
    for (std::size_t place = 0; place < 2; ++place) {
      if (operands[place] == operand) recipe.rules[product][place] = rule;
    }
  }
}

void parse_products(Recipe& recipe, const Json& products) {
  if (!products.is_object()) throw Error("products: expected an object");
  for (const auto& [name, operands] : products.items()) {
    const std::string where = "products." + name;
    const auto product = index_of(name, kProductNames);
    if (!product) throw unknown_key(where, name, kProductNames);
    if (!operands.is_object()) throw Error(where + ": expected an object");
    const auto places = operands_of(static_cast<Product>(*product));
    for (const auto& [operand, rule] : operands.items()) {
      const std::string key = where + "." + operand;
      if (operand == to_string(places[0])) {
        recipe.rules[*product][0] = parse_rule(rule, key);
      } else if (operand == to_string(places[1])) {
        recipe.rules[*product][1] = parse_rule(rule, key);
      } else {
        throw Error(key + ": this GEMM multiplies " + std::string(to_string(places[0])) + " and " +
                    std::string(to_string(places[1])));
      }
    }
  }
}

/// What one GEMM recovers to: "high", "low", or what a built-in recipe makes of it.
GemmRecovery recovery_of(const Json& value, Product product, const std::string& where) {
  const std::string name = text_of(value, where);
  if (name == "high") return {};
  if (name == "low") return {.path = RecoveryPath::low, .name = name};
  std::vector<std::string> names = recipe_names();
  names.insert(names.begin(), {"high", "low"});
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    std::string known;
    for (const std::string& one : names) known += (known.empty() ? "" : ", ") + one;
    throw Error(where + ": expected one of " + known + ", got \"" + name + "\"" + did_you_mean(name, names));
  }
  GemmRecovery recovery{.path = RecoveryPath::rules, .name = name};
  recovery.rules = parse_recipe(recipe_json(name)).rules[static_cast<std::size_t>(product)];
  for (const std::optional<CastRule>& rule : recovery.rules) {
    if (rule && rule->grouping == Grouping::delayed) {
      throw Error(where + ": \"" + name + "\" has delayed scaling, whose scales are too old where it runs rarely");
    }
    if (rule && rule->rounding == formats::Rounding::stochastic) {
      throw Error(where + ": \"" + name + "\" rounds stochastically, which does not run on every device");
    }
  }
  return recovery;
}

void parse_recovery(Recipe& recipe, const Json& value) {
  const std::string where = "recovers_to";
  if (!value.is_object()) {
    for (std::size_t product = 0; product < kProductCount; ++product) {
      recipe.recovery[product] = recovery_of(value, static_cast<Product>(product), where);
    }
  } else {
    for (const auto& [name, one] : value.items()) {
      const auto product = index_of(name, kProductNames);
      const std::string key = where + "." + name;
      if (!product) throw unknown_key(key, name, kProductNames);
      recipe.recovery[*product] = recovery_of(one, static_cast<Product>(*product), key);
    }
  }
  if (std::all_of(recipe.recovery.begin(), recipe.recovery.end(),
                  [](const GemmRecovery& one) { return one.path == RecoveryPath::low; })) {
    throw Error(where + ": a unit in recovery would run its low path as before; let some GEMM recover");
  }
}

/// The wider operand, in bits; what is not quantized has 16.
int operand_bits(const GemmRules& rules) {
  int bits = 0;
  for (const std::optional<CastRule>& rule : rules) {
    bits = std::max(bits, rule ? formats::layout_of(rule->format).code_bits : 16);
  }
  return bits;
}

/// A transform cancels only where both operands have the same one.
void check_transforms(const Recipe& recipe) {
  for (std::size_t product = 0; product < kProductCount; ++product) {
    const auto& [left, right] = recipe.rules[product];
    if ((left ? left->hadamard : 0) != (right ? right->hadamard : 0)) {
      throw Error(std::string(kProductNames[product]) + ": both operands need the same \"hadamard\", or neither");
    }
  }
}

}  // namespace

std::string_view to_string(Product product) { return kProductNames[static_cast<std::size_t>(product)]; }
std::string_view to_string(Operand operand) { return kOperandNames[static_cast<std::size_t>(operand)]; }

bool Recipe::uses_delayed(Operand operand) const {
  for (std::size_t product = 0; product < kProductCount; ++product) {
    const auto operands = operands_of(static_cast<Product>(product));
    for (std::size_t place = 0; place < 2; ++place) {
      const auto& rule = rules[product][place];
      if (operands[place] == operand && rule && rule->grouping == Grouping::delayed) return true;
    }
  }
  return false;
}

bool Recipe::has_ladder() const {
  return std::any_of(recovery.begin(), recovery.end(),
                     [](const GemmRecovery& one) { return one.path != RecoveryPath::high; });
}

double Recipe::recovery_cost() const {
  double bits = 0;
  for (std::size_t product = 0; product < kProductCount; ++product) {
    const GemmRecovery& one = recovery[product];
    bits +=
        one.path == RecoveryPath::high ? 16 : operand_bits(one.path == RecoveryPath::low ? rules[product] : one.rules);
  }
  return bits / (16.0 * kProductCount);
}

Recipe parse_recipe(std::string_view json_text) {
  const Json document = io::parse_json(json_text, io::RepeatedKeys::accept);
  if (!document.is_object()) throw Error("expected a JSON object");
  Recipe recipe;
  for (const auto& [key, value] : document.items()) {
    if (key == "name") {
      recipe.name = text_of(value, key);
    } else if (key == "about") {
      recipe.about = text_of(value, key);
    } else if (const auto operand = index_of(key, kOperandNames)) {
      set_operand_everywhere(recipe, static_cast<Operand>(*operand), parse_rule(value, key));
    } else if (key == "recovers_to") {
      parse_recovery(recipe, value);
    } else if (key != "products") {
      throw unknown_key(key, key, kRecipeKeys);
    }
  }
  if (document.contains("products")) parse_products(recipe, document.at("products"));
  if (recipe.name.empty()) throw Error("expected a key \"name\"");
  check_transforms(recipe);
  return recipe;
}

std::string recovery_text(const Recipe& recipe) {
  const auto& [forward, input_gradient, weight_gradient] = recipe.recovery;
  if (forward.name == input_gradient.name && forward.name == weight_gradient.name) return forward.name;
  return "forward " + forward.name + ", dgrad " + input_gradient.name + ", wgrad " + weight_gradient.name;
}

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const BuiltinRecipe& recipe : builtin_recipes()) names.emplace_back(recipe.name);
  return names;
}

std::string_view recipe_json(std::string_view name) {
  std::string known;
  for (const BuiltinRecipe& recipe : builtin_recipes()) {
    if (recipe.name == name) return recipe.json;
    known += (known.empty() ? "" : ", ") + std::string(recipe.name);
  }
  std::vector<std::string> choices = recipe_names();
  choices.emplace_back("none");
  throw Error("recipe " + io::in_quotes(name) + ": there is none such (known: " + known + "; or a .json file)" +
              did_you_mean(name, choices));
}

std::string recipe_text(const std::string& name_or_path) {
  const bool is_path = name_or_path.ends_with(".json") || name_or_path.find('/') != std::string::npos;
  return is_path ? io::read_whole_file(name_or_path, kLargestRecipeBytes) : std::string(recipe_json(name_or_path));
}

Recipe load_recipe(const std::string& name_or_path) {
  const std::string text = recipe_text(name_or_path);
  try {
    return parse_recipe(text);
  } catch (const Error& error) {
    throw io::error_at(name_or_path, error.what());
  }
}

}  // namespace gnmr::recipes
