// SPDX-License-Identifier: Apache-2.0
#include "gnmr/recipes/recipe.h"

#include "bind.h"
#include "gnmr/recipes/fp8_rule.h"
#include "gnmr/recipes/host_cast.h"
#include "recipe_places.h"

namespace gnmr::python {
namespace {

using recipes::CastRule;
using recipes::Recipe;

void bind_rules(nb::class_<Recipe>& recipe) {
  recipe
      .def(
          "casts",
          [](const Recipe& self, std::size_t product, std::size_t place) {
            return self.rule(product_of(product), place).has_value();
          },
          "product"_a, "place"_a, "Whether the operand of a product is cast.")
      .def(
          "is_delayed",
          [](const Recipe& self, std::size_t product, std::size_t place) {
            const auto& rule = self.rule(product_of(product), place);
            return rule && rule->grouping == recipes::Grouping::delayed;
          },
          "product"_a, "place"_a, "Whether the scale of an operand comes from earlier steps.")
      .def(
          "hadamard",
          [](const Recipe& self, std::size_t product, std::size_t place) {
            return rule_of(self, product, place).hadamard;
          },
          "product"_a, "place"_a, "The size of the random Hadamard transform before the cast; 0: none.")
      .def(
          "is_random",
          [](const Recipe& self, std::size_t product, std::size_t place) {
            return rule_of(self, product, place).rounding == formats::Rounding::stochastic;
          },
          "product"_a, "place"_a, "Whether the cast rounds by chance.")
      .def(
          "ignores_direction",
          [](const Recipe& self, std::size_t product, std::size_t place) {
            return rule_of(self, product, place).ignores_direction();
          },
          "product"_a, "place"_a, "Whether the cast is the same whichever way the product sums.")
      .def(
          "shares_cast",
          [](const Recipe& self, std::size_t product, std::size_t place, std::size_t other, std::size_t other_place,
             bool has_both_sides) {
            const auto& rule = self.rule(product_of(product), place);
            return rule && rule == self.rule(product_of(other), other_place) &&
                   recipes::can_share(*rule, has_both_sides);
          },
          "product"_a, "place"_a, "other_product"_a, "other_place"_a, "has_both_sides"_a = false,
          "Whether one cast of an operand is what two GEMMs need; `has_both_sides`: it leaves a matrix for each "
          "direction, as casts to FP8 codes do.")
      .def(
          "expected_error",
          [](const Recipe& self, std::size_t product) { return recipes::expected_error(self, product_of(product)); },
          "product"_a, "What rounding alone does to a product, as a relative error; 0: not known.")
      .def_prop_ro(
          "has_ladder", [](const Recipe& self) { return self.has_ladder(); },
          "Whether units in recovery run anything but high precision.")
      .def_prop_ro(
          "recovery_cost", [](const Recipe& self) { return self.recovery_cost(); },
          "What a unit in recovery costs, by the bits of its operands; 1: high precision.");
}

void bind_codes(nb::class_<Recipe>& recipe) {
  recipe
      .def_prop_ro(
          "has_fp8_codes", [](const Recipe& self) { return recipes::has_fp8_codes(self); },
          "Whether all its casts leave FP8 codes that the kernels make, so that it can run on a CUDA device.")
      .def(
          "fp8_format",
          [](const Recipe& self, std::size_t product, std::size_t place) {
            return formats::format_name(rule_of(self, product, place).format);
          },
          "product"_a, "place"_a, "The format of an operand's codes, `e4m3` or `e5m2`.")
      .def(
          "fp8_groups",
          [](const Recipe& self, std::size_t product, std::size_t place) {
            return group_name(rule_of(self, product, place).grouping);
          },
          "product"_a, "place"_a,
          "Which codes of an operand share a scale: all (`tensor`), a `row` of what is summed over, 128 of them "
          "(`tile`) "
          "or 128 x 128 (`block`).");
}

}  // namespace

void bind_recipe(nb::module_& module) {
  nb::class_<Recipe> recipe(module, "Recipe",
                            "How each operand of each GEMM of a linear layer is quantized. GEMMs: 0 forward (input, "
                            "weight), 1 input gradient (output gradient, weight), 2 weight gradient (output gradient, "
                            "input); an operand's place is 0 or 1 in that order.");
  recipe.def(nb::new_([](const std::string& name_or_path) { return recipes::load_recipe(name_or_path); }),
             "name_or_path"_a, "A built-in recipe by name, or one from a JSON file.");
  recipe.def_ro("name", &Recipe::name).def_ro("about", &Recipe::about);
  bind_rules(recipe);
  bind_codes(recipe);
  module.def("recipe_names", &recipes::recipe_names, "The names of the built-in recipes.");
}

}  // namespace gnmr::python
