// SPDX-License-Identifier: Apache-2.0
// A recipe: how each operand of each GEMM of a linear layer is quantized. Recipes are data (JSON).
//
//   {"name": "fp8-delayed", "about": "...",
//    "input": {"format": "e4m3", "scaling": "delayed", "interval": 1}, "weight": {...}, "output_gradient": {...},
//    "products": {"weight_gradient": {"input": {...}}}, "recovers_to": "fp8-rowwise"}
//
// The first three are what an operand is in every GEMM, `products` are exceptions; an operand that is not named,
// or null, is not quantized. `recovers_to` is what a unit in recovery runs. docs/recipes.md has every key.
//
// Goals: one reader for built-in and users' recipes; an error names the key. Non-goals: tensors (gnmr/torch).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gnmr/formats/cast.h"
#include "gnmr/formats/delayed_scaling.h"
#include "gnmr/formats/scaling.h"

namespace gnmr::recipes {

/// The three GEMMs of a linear layer.
enum class Product : std::uint8_t { forward, input_gradient, weight_gradient };
inline constexpr std::size_t kProductCount = 3;

/// The three matrices that they multiply.
enum class Operand : std::uint8_t { input, weight, output_gradient };
inline constexpr std::size_t kOperandCount = 3;

/// `"forward"`, `"input_gradient"` or `"weight_gradient"`.
std::string_view to_string(Product product);

/// `"input"`, `"weight"` or `"output_gradient"`.
std::string_view to_string(Operand operand);

/// The operands of a GEMM, the left one first.
constexpr std::array<Operand, 2> operands_of(Product product) {
  switch (product) {
    case Product::forward:
      return {Operand::input, Operand::weight};
    case Product::input_gradient:
      return {Operand::output_gradient, Operand::weight};
    case Product::weight_gradient:
      break;
  }
  return {Operand::output_gradient, Operand::input};
}

/// Which elements share a scale. Directions are those of the GEMM: along what it sums over.
enum class Grouping : std::uint8_t {
  none,     // no scale
  tensor,   // one scale
  delayed,  // one scale, from earlier steps
  row,      // all that is summed over for one row or column of the result
  tile,     // 1x128 along the sum
  block,    // 128x128
  mx,       // 1x32 along the sum, E8M0
  nvfp4,    // 1x16 along the sum, E4M3 under a float32 per tensor
};

/// How one operand of one GEMM is quantized.
struct CastRule {
  formats::Format format = formats::Format::e4m3;
  formats::Rounding rounding = formats::Rounding::nearest_even;
  formats::Overflow overflow = formats::Overflow::saturate;
  Grouping grouping = Grouping::tensor;
  bool mx_round_up = false;           // mx: the smallest scale without overflow, instead of OCP's floor
  std::uint32_t history_length = 16;  // delayed
  std::uint32_t update_interval = 1;  // delayed: steps
  int margin = 0;                     // delayed
  formats::AmaxChoice choice = formats::AmaxChoice::largest;  // delayed
  std::uint32_t hadamard = 0;  // size of a random Hadamard transform along the sum; both operands have it or none

  bool operator==(const CastRule&) const = default;

  /// Whether quantization is the same whichever way the GEMM sums.
  constexpr bool ignores_direction() const {
    return hadamard == 0 && (grouping == Grouping::none || grouping == Grouping::tensor ||
                             grouping == Grouping::delayed || grouping == Grouping::block);
  }

  /// How its scale follows its history.
  formats::DelayedScaling delayed_scaling() const { return {format, history_length, update_interval, choice, margin}; }
};

/// How the two operands of a GEMM are quantized, as operands_of orders them; without a rule one stays as it is.
using GemmRules = std::array<std::optional<CastRule>, 2>;

/// What a GEMM of a unit in recovery runs.
enum class RecoveryPath : std::uint8_t {
  high,   // high precision
  rules,  // low precision by other rules
  low,    // the low path: this GEMM does not recover
};

/// The recovery of one GEMM.
struct GemmRecovery {
  RecoveryPath path = RecoveryPath::high;
  std::string name = "high";  // of the path, or of the recipe with these rules
  GemmRules rules{};          // with RecoveryPath::rules; none with delayed scaling or stochastic rounding

  bool operator==(const GemmRecovery&) const = default;
};

/// How all operands are quantized; where there is no rule the operand stays as it is.
struct Recipe {
  std::string name;
  std::string about;
  std::array<GemmRules, kProductCount> rules{};
  std::array<GemmRecovery, kProductCount> recovery{};

  const std::optional<CastRule>& rule(Product product, std::size_t operand) const {
    return rules[static_cast<std::size_t>(product)][operand];
  }

  /// Whether any rule has a memory.
  bool uses_delayed(Operand operand) const;

  /// Whether units in recovery run anything but high precision.
  bool has_ladder() const;

  /// What a unit in recovery costs, by the bits of the operands that each GEMM reads: 1 is high precision at 16 bits.
  double recovery_cost() const;
};

/// Whether two recipes compute the same; names and descriptions may differ.
inline bool computes_alike(const Recipe& a, const Recipe& b) { return a.rules == b.rules && a.recovery == b.recovery; }

/// A recipe from JSON; an `Error` names the key that is unknown, missing or wrong.
Recipe parse_recipe(std::string_view json_text);

/// What units in recovery run, in words: `fp8-rowwise`, say, or each GEMM by itself.
std::string recovery_text(const Recipe& recipe);

/// The names of the built-in recipes.
std::vector<std::string> recipe_names();

/// The JSON of a built-in recipe; an `Error` that lists the names where there is none such.
std::string_view recipe_json(std::string_view name);

/// The JSON of a built-in recipe by name, or the content of a file by its path.
std::string recipe_text(const std::string& name_or_path);

/// A built-in recipe by name, or one from a file by its path.
Recipe load_recipe(const std::string& name_or_path);

}  // namespace gnmr::recipes
