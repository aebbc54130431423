// SPDX-License-Identifier: Apache-2.0
#include "gnmr/recipes/recipe.h"

#include "bind.h"
#include "gnmr/kernels/casts.h"
#include "gnmr/recipes/delayed_memory.h"
#include "gnmr/recipes/fp8_rule.h"
#include "gnmr/recipes/host_cast.h"
#include "recipe_places.h"
#include "thread_pool.h"

namespace gnmr::python {
namespace {

using recipes::CastRule;
using recipes::DelayedMemory;
using recipes::Recipe;

constexpr std::size_t kRecipePieces = 2;

struct HostMatrix {
  std::uint64_t pointer;
  std::size_t rows, cols, stride;

  formats::ConstMatrix view() const { return {reinterpret_cast<const float*>(pointer), rows, cols, stride}; }
};

void cast(const Recipe& self, std::size_t product, std::size_t place, std::uint64_t input, std::size_t input_stride,
          std::uint64_t output, std::size_t rows, std::size_t cols, float scale, std::uint64_t seed,
          std::size_t threads) {
  const CastRule& rule = rule_of(self, product, place);
  const HostMatrix from{input, rows, cols, input_stride};
  const nb::gil_scoped_release released;
  recipes::cast_on_host({.rule = rule, .delayed_scale = scale, .seed = seed}, from.view(),
                        {reinterpret_cast<float*>(output), rows, cols, cols}, on_threads(threads, kRecipePieces));
}

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
          "Whether one cast of an operand is what two products need; `has_both_sides`: it leaves a matrix for each "
          "direction, as casts to FP8 codes do.")
      .def(
          "expected_error",
          [](const Recipe& self, std::size_t product) { return recipes::expected_error(self, product_of(product)); },
          "product"_a, "What rounding alone does to a product, as a relative error; 0: not known.")
      .def(
          "cast", cast, "product"_a, "place"_a, "input"_a, "input_stride"_a, "output"_a, "rows"_a, "cols"_a, "scale"_a,
          "seed"_a, "threads"_a,
          "Casts a float32 matrix at an address in host memory; groups lie along the columns. `scale`: that of delayed "
          "scaling, 0: that of the matrix itself.");
}

std::string_view role_name(kernels::CastGroups groups) {
  switch (groups) {
    case kernels::CastGroups::row:
      return "row";
    case kernels::CastGroups::tile:
      return "tile";
    case kernels::CastGroups::block:
      return "block";
    default:
      return "tensor";
  }
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
            const recipes::Grouping grouping = rule_of(self, product, place).grouping;
            return role_name(recipes::fp8_groups<kernels::CastGroups>(grouping, false));
          },
          "product"_a, "place"_a,
          "Which codes of an operand share a scale: all (`tensor`), a `row` of what is summed over, 128 of them "
          "(`tile`) "
          "or 128 x 128 (`block`).");
}

void bind_memory(nb::module_& module) {
  nb::class_<DelayedMemory>(module, "DelayedMemory", "What the low path of one layer remembers: histories of amaxes.")
      .def(nb::init<const Recipe&>(), "recipe"_a)
      .def(
          "wants", [](const DelayedMemory& self, std::size_t operand) { return self.wants(operand_of(operand)); },
          "operand"_a, "Whether an operand's (0 input, 1 weight, 2 output gradient) amax is remembered.")
      .def(
          "note", [](DelayedMemory& self, std::size_t operand, float amax) { self.note(operand_of(operand), amax); },
          "operand"_a, "amax"_a)
      .def(
          "scale",
          [](const DelayedMemory& self, std::size_t product, std::size_t place) {
            if (place >= 2) throw Error("[delayed memory] expected a place 0 or 1");
            return self.scale(product_of(product), place);
          },
          "product"_a, "place"_a, "The scale of an operand; 0: nothing is remembered yet.")
      .def("begin_step", &DelayedMemory::begin_step, "The step begins, or begins again.")
      .def("end_step", &DelayedMemory::end_step, "What was noted enters the histories.")
      .def("save", &DelayedMemory::save, "All that is remembered, as JSON.")
      .def("restore", &DelayedMemory::restore, "text"_a);
}

}  // namespace

void bind_recipe(nb::module_& module) {
  nb::class_<Recipe> recipe(module, "Recipe",
                            "How each operand of each product of a linear layer is cast. Products: 0 forward (input, "
                            "weight), 1 input gradient (output gradient, weight), 2 weight gradient (output gradient, "
                            "input); an operand's place is 0 or 1 in that order.");
  recipe.def(nb::new_([](const std::string& name_or_path) { return recipes::load_recipe(name_or_path); }),
             "name_or_path"_a, "A built-in recipe by name, or one from a JSON file.");
  recipe.def_ro("name", &Recipe::name).def_ro("about", &Recipe::about);
  bind_rules(recipe);
  bind_codes(recipe);
  bind_memory(module);
  module.def("recipe_names", &recipes::recipe_names, "The names of the built-in recipes.");
  module.def(
      "cast_seed",
      [](std::uint64_t seed, std::int64_t step, std::int64_t micro_batch, std::uint32_t layer, std::size_t product,
         std::size_t purpose) {
        return recipes::cast_seed({seed, step, micro_batch, layer}, product_of(product), purpose);
      },
      "seed"_a, "step"_a, "micro_batch"_a, "layer"_a, "product"_a, "purpose"_a,
      "The seed of a product's random numbers: the same when a step is run again.");
  module.def(
      "hadamard_matrix",
      [](std::uint32_t size, std::uint64_t seed) {
        auto* const entries = new std::vector<float>(recipes::hadamard_matrix(size, seed));
        const nb::capsule owner(entries, [](void* held) noexcept { delete static_cast<std::vector<float>*>(held); });
        return nb::ndarray<nb::memview, float, nb::ndim<1>, nb::c_contig>(entries->data(), {entries->size()}, owner);
      },
      nb::sig("def hadamard_matrix(size: int, seed: int) -> memoryview"), "size"_a, "seed"_a,
      "A Hadamard matrix with the sign of each row by chance, row by row.");
  module.def(
      "finite_amax",
      [](std::uint64_t pointer, std::size_t rows, std::size_t cols, std::size_t stride, std::size_t threads) {
        return recipes::amax_on_host(HostMatrix{pointer, rows, cols, stride}.view(),
                                     on_threads(threads, kRecipePieces));
      },
      "pointer"_a, "rows"_a, "cols"_a, "stride"_a, "threads"_a, nb::call_guard<nb::gil_scoped_release>(),
      "The largest magnitude among the finite values of a float32 matrix at an address in host memory.");
}

}  // namespace gnmr::python
