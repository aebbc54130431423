// SPDX-License-Identifier: Apache-2.0
#include "gnmr/recipes/recipe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/recipes/builtin_recipes.h"
#include "io/temporary_folder.h"

namespace gnmr::recipes {
namespace {

using formats::Format;
using test::content_of;
using test::error_of;

const CastRule& rule_of(const Recipe& recipe, Product product, Operand operand) {
  const auto operands = operands_of(product);
  const auto& rule = recipe.rule(product, operands[0] == operand ? 0 : 1);
  EXPECT_TRUE(rule.has_value());
  return *rule;
}

/// All rules of an operand, whatever the product.
std::vector<std::optional<CastRule>> rules_of(const Recipe& recipe, Operand operand) {
  std::vector<std::optional<CastRule>> rules;
  for (const Product product : {Product::forward, Product::input_gradient, Product::weight_gradient}) {
    for (std::size_t place = 0; place < 2; ++place) {
      if (operands_of(product)[place] == operand) rules.push_back(recipe.rule(product, place));
    }
  }
  return rules;
}

TEST(Recipe, BuiltInOnesAreTheFilesOfTheFolder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(GNMR_RECIPES_DIR)) {
    ASSERT_EQ(entry.path().extension(), ".json");
    files.push_back(entry.path().stem().string());
    EXPECT_EQ(recipe_json(files.back()), content_of(entry.path().string()));
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> names = recipe_names();
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, files);
  for (const std::string& name : names) {
    const Recipe recipe = load_recipe(name);
    EXPECT_EQ(recipe.name, name);
    EXPECT_GT(recipe.about.size(), 20u);
    for (const Operand operand : {Operand::input, Operand::weight, Operand::output_gradient}) {
      EXPECT_EQ(rules_of(recipe, operand).size(), 2u);
      for (const auto& rule : rules_of(recipe, operand)) EXPECT_TRUE(rule.has_value()) << name;
    }
  }
}

TEST(Recipe, BuiltInOnesAreWhatTheirNamesSay) {
  const Recipe deepseek = load_recipe("fp8-deepseek");
  for (const auto& rule : rules_of(deepseek, Operand::weight)) {
    EXPECT_EQ(rule->format, Format::e4m3);
    EXPECT_EQ(rule->grouping, Grouping::block);
  }
  for (const Operand operand : {Operand::input, Operand::output_gradient}) {
    for (const auto& rule : rules_of(deepseek, operand)) {
      EXPECT_EQ(rule->format, Format::e4m3);
      EXPECT_EQ(rule->grouping, Grouping::tile);
    }
  }
  const Recipe delayed = load_recipe("fp8-delayed");
  EXPECT_EQ(rule_of(delayed, Product::forward, Operand::input).format, Format::e4m3);
  EXPECT_EQ(rule_of(delayed, Product::input_gradient, Operand::output_gradient).format, Format::e5m2);
  EXPECT_TRUE(delayed.uses_delayed(Operand::weight) && delayed.uses_delayed(Operand::output_gradient));
  EXPECT_EQ(rule_of(delayed, Product::forward, Operand::input).history_length, 16u);
  EXPECT_EQ(rule_of(delayed, Product::forward, Operand::input).update_interval, 1u);
  EXPECT_FALSE(load_recipe("fp8-tensorwise").uses_delayed(Operand::input));
  const CastRule mx = rule_of(load_recipe("mxfp8"), Product::weight_gradient, Operand::input);
  EXPECT_EQ(mx.grouping, Grouping::mx);
  EXPECT_TRUE(mx.mx_round_up);
  EXPECT_EQ(rule_of(load_recipe("nvfp4"), Product::forward, Operand::weight).format, Format::e2m1);
  EXPECT_EQ(rule_of(load_recipe("int8"), Product::forward, Operand::weight).grouping, Grouping::row);
  EXPECT_EQ(rule_of(load_recipe("int4-act"), Product::forward, Operand::input).format, Format::int4);
  EXPECT_EQ(rule_of(load_recipe("int3-act"), Product::weight_gradient, Operand::input).format, Format::int3);
  EXPECT_EQ(rule_of(load_recipe("int3-act"), Product::forward, Operand::weight).format, Format::bfloat16);
  const Recipe transformed = load_recipe("nvfp4-hadamard");
  for (const Product product : {Product::forward, Product::input_gradient, Product::weight_gradient}) {
    for (std::size_t place = 0; place < 2; ++place) {
      const CastRule& rule = *transformed.rule(product, place);
      EXPECT_EQ(rule.hadamard, product == Product::weight_gradient ? 16u : 0u);
      const bool gradient = operands_of(product)[place] == Operand::output_gradient;
      EXPECT_EQ(rule.rounding == formats::Rounding::stochastic, gradient);
    }
  }
}

TEST(Recipe, EveryKeyIsRead) {
  const Recipe recipe = parse_recipe(R"({
    "name": "mine", "about": "All keys.",
    "input": {"format": "e3m2", "scaling": "mx", "round": "up", "rounding": "stochastic"},
    "weight": {"format": "int8", "scaling": "delayed", "history": 7, "interval": 5, "choice": "newest", "margin": -3,
               "overflow": "non_finite"},
    "output_gradient": null,
    "products": {"weight_gradient": {"input": {"format": "e2m1", "scaling": "nvfp4", "hadamard": 64},
                                     "output_gradient": {"format": "e2m3", "scaling": "row", "hadamard": 64}}}})");
  EXPECT_EQ(recipe.name, "mine");
  EXPECT_EQ(recipe.about, "All keys.");
  EXPECT_EQ(*recipe.rule(Product::forward, 0), (CastRule{.format = Format::e3m2,
                                                         .rounding = formats::Rounding::stochastic,
                                                         .grouping = Grouping::mx,
                                                         .mx_round_up = true}));
  const CastRule weight{.format = Format::int8,
                        .overflow = formats::Overflow::non_finite,
                        .grouping = Grouping::delayed,
                        .history_length = 7,
                        .update_interval = 5,
                        .margin = -3,
                        .choice = formats::AmaxChoice::newest};
  EXPECT_EQ(*recipe.rule(Product::forward, 1), weight);
  EXPECT_EQ(*recipe.rule(Product::input_gradient, 1), weight);
  EXPECT_FALSE(recipe.rule(Product::input_gradient, 0).has_value());
  EXPECT_EQ(*recipe.rule(Product::weight_gradient, 1),
            (CastRule{.format = Format::e2m1, .grouping = Grouping::nvfp4, .hadamard = 64}));
  EXPECT_EQ(recipe.rule(Product::weight_gradient, 0)->grouping, Grouping::row);
  EXPECT_EQ(weight.delayed_scaling().update_interval, 5u);
  // What is not said is the default.
  const Recipe plain = parse_recipe(R"({"name": "p", "input": {"format": "e4m3"}})");
  EXPECT_EQ(*plain.rule(Product::forward, 0), CastRule{});
  EXPECT_FALSE(plain.rule(Product::forward, 1).has_value());
}

TEST(Recipe, NamesWhatItRecoversTo) {
  const auto with = [](const std::string& recovery) {
    return parse_recipe(R"({"name": "r", "input": {"format": "int4"}, "recovers_to": )" + recovery + "}");
  };
  const Recipe plain = parse_recipe(R"({"name": "r", "input": {"format": "int4"}})");
  EXPECT_FALSE(plain.has_ladder());
  EXPECT_EQ(plain.recovery_cost(), 1);
  EXPECT_EQ(recovery_text(plain), "high");
  EXPECT_TRUE(computes_alike(plain, with(R"("high")")));
  const Recipe fp8 = with(R"("fp8-rowwise")");
  EXPECT_TRUE(fp8.has_ladder());
  EXPECT_FALSE(computes_alike(plain, fp8));
  EXPECT_EQ(recovery_text(fp8), "fp8-rowwise");
  for (std::size_t product = 0; product < kProductCount; ++product) {
    EXPECT_EQ(fp8.recovery[product].path, RecoveryPath::rules);
    EXPECT_EQ(fp8.recovery[product].rules, load_recipe("fp8-rowwise").rules[product]);
  }
  EXPECT_EQ(fp8.recovery_cost(), 0.5) << "8 of 16 bits";
  const Recipe mixed = with(R"({"forward": "mxfp8", "input_gradient": "low"})");
  EXPECT_EQ(mixed.recovery[0].rules, load_recipe("mxfp8").rules[0]);
  EXPECT_EQ(mixed.recovery[1].path, RecoveryPath::low);
  EXPECT_EQ(mixed.recovery[2].path, RecoveryPath::high);
  EXPECT_EQ(recovery_text(mixed), "forward mxfp8, dgrad low, wgrad high");
  // The low dgrad takes no operand that is quantized: 16 bits.
  EXPECT_DOUBLE_EQ(mixed.recovery_cost(), (8 + 16 + 16) / 48.0);
  const auto refused = [&](const std::string& recovery, const std::string& what) {
    const std::string message = error_of<Error>([&] { with(recovery); });
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  refused(R"("fp8-rowise")", R"(did you mean 'fp8-rowwise'?)");
  refused(R"("fp8-delayed")", "delayed scaling");
  refused(R"("nvfp4-hadamard")", "stochastic");
  refused(R"("low")", "let some GEMM recover");
  refused(R"({"dgrad": "low"})", "recovers_to.dgrad: unknown key");
  refused("3", "recovers_to: expected a string");
}

TEST(Recipe, DirectionMattersWhereGroupsHaveOne) {
  for (const auto& [name, ignores] : {std::pair("none", true),
                                      {"tensor", true},
                                      {"delayed", true},
                                      {"block", true},
                                      {"row", false},
                                      {"tile", false},
                                      {"mx", false},
                                      {"nvfp4", false}}) {
    const std::string format = name == std::string("none") ? "bfloat16" : "e4m3";
    const Recipe recipe =
        parse_recipe(R"({"name":"p","input":{"format":")" + format + R"(","scaling":")" + name + R"("}})");
    EXPECT_EQ(recipe.rule(Product::forward, 0)->ignores_direction(), ignores) << name;
  }
  EXPECT_FALSE((CastRule{.hadamard = 16}).ignores_direction());
}

TEST(Recipe, ErrorsNameTheKey) {
  const auto operand = [](const std::string& text) {
    return error_of<Error>([&] { parse_recipe(R"({"name":"p","input":)" + text + "}"); });
  };
  const auto whole = [](const std::string& text) { return error_of<Error>([&] { parse_recipe(text); }); };
  EXPECT_NE(operand(R"({"format":"e4m3","scalings":"row"})").find("input.scalings: unknown key"), std::string::npos);
  for (const char* const key :
       {"format", "scaling", "rounding", "overflow", "round", "choice", "history", "interval", "margin", "hadamard"}) {
    EXPECT_EQ(operand(std::string(R"({")") + key + R"(":"nonsense"})").find(std::string("input.") + key + ": expected"),
              0u)
        << key;
    EXPECT_EQ(operand(std::string(R"({")") + key + R"(":true})").find(std::string("input.") + key + ": expected"), 0u);
    EXPECT_EQ(operand(std::string(R"({")") + key + R"(":18446744073709551611})")
                  .find(std::string("input.") + key + ": expected"),
              0u)
        << key;
  }
  EXPECT_NE(operand(R"({"format":"e8m0"})").find("e4m3"), std::string::npos);
  EXPECT_EQ(operand(R"({"scaling":"row"})"), "input: expected a key \"format\"");
  EXPECT_EQ(operand("3"), "input: expected an object or null, got 3");
  EXPECT_EQ(operand(R"({"format":"e4m3","scaling":"none"})").find("input.scaling"), 0u);
  EXPECT_EQ(operand(R"({"format":"int8","scaling":"nvfp4"})").find("input.scaling"), 0u);
  EXPECT_EQ(operand(R"({"format":"e4m3","interval":2})"), "input.interval: only with scaling \"delayed\"");
  EXPECT_EQ(operand(R"({"format":"e4m3","round":"up"})"), "input.round: only with scaling \"mx\"");
  EXPECT_EQ(operand(R"({"format":"e4m3","hadamard":12})").find("input.hadamard"), 0u);
  EXPECT_EQ(operand(R"({"format":"e4m3","scaling":"delayed","history":0})").find("input.history"), 0u);
  EXPECT_NE(operand(R"({"format":"e4m3","hadamard":16})").find("both operands"), std::string::npos);
  EXPECT_EQ(whole(R"({"inputs":null,"name":"p"})").find("inputs: unknown key"), 0u);
  EXPECT_EQ(whole(R"({"name":3})").find("name: expected"), 0u);
  EXPECT_NE(whole("{}").find("name"), std::string::npos);
  EXPECT_EQ(whole("[]"), "expected a JSON object");
  EXPECT_EQ(whole("{").find("not JSON: column 2"), 0u);
  EXPECT_EQ(whole(R"({"name":"p","products":{"backward":{}}})").find("products.backward"), 0u);
  EXPECT_EQ(whole(R"({"name":"p","products":{"forward":{"output_gradient":null}}})")
                .find("products.forward.output_gradient: this GEMM multiplies input and weight"),
            0u);
  EXPECT_EQ(
      whole(R"({"name":"p","products":{"forward":{"input":{"format":"x"}}}})").find("products.forward.input.format"),
      0u);
}

TEST(Recipe, FilesAreReadByPath) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("mine.json");
  test::put_file(path, R"({"name":"mine","weight":{"format":"int4","scaling":"tile"}})");
  EXPECT_EQ(load_recipe(path).name, "mine");
  test::put_file(path, R"({"name":"mine","weight":{"format":"int5"}})");
  EXPECT_EQ(error_of<Error>([&] { load_recipe(path); }).find(path + ": weight.format"), 0u);
  EXPECT_NE(error_of<Error>([&] { load_recipe(folder.file("none.json")); }).find("none.json"), std::string::npos);
  const std::string unknown = error_of<Error>([] { load_recipe("fp8"); });
  for (const std::string& name : recipe_names()) EXPECT_NE(unknown.find(name), std::string::npos);
}

TEST(Recipe, ThePageNamesEveryRecipeAndKey) {
  const std::string page = content_of(std::string(GNMR_DOCS_DIR) + "/recipes.md");
  const auto named = [&](const std::string& word) { return page.find("`" + word + "`") != std::string::npos; };
  for (const std::string& name : recipe_names()) EXPECT_TRUE(named(name)) << name;
  // Every key and word that an error message lists.
  const std::string keys = error_of<Error>([] { parse_recipe(R"({"name":"p","input":{"x":0}})"); });
  const std::string top = error_of<Error>([] { parse_recipe(R"({"x":0})"); });
  const std::string scalings = error_of<Error>([] { parse_recipe(R"({"name":"p","input":{"scaling":"x"}})"); });
  const std::string formats = error_of<Error>([] { parse_recipe(R"({"name":"p","input":{"format":"x"}})"); });
  for (const std::string& message : {keys, top, scalings, formats}) {
    const std::size_t known = message.find("known: ");
    const std::size_t begin = known != std::string::npos ? known + 7 : message.find("one of ") + 7;
    std::string list = message.substr(begin, message.find_first_of(")", begin) - begin);
    list = list.substr(0, list.find(", got"));
    std::size_t count = 0;
    for (std::size_t at = 0; at < list.size(); ++count) {
      const std::size_t end = std::min(list.find(", ", at), list.size());
      EXPECT_TRUE(named(list.substr(at, end - at))) << list.substr(at, end - at);
      at = end + 2;
    }
    EXPECT_GE(count, 6u) << message;
  }
  // The example on the page is a recipe.
  const std::size_t begin = page.find("```json\n") + 8;
  EXPECT_EQ(parse_recipe(page.substr(begin, page.find("```", begin) - begin)).name, "my-recipe");
}

}  // namespace
}  // namespace gnmr::recipes
