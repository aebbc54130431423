// SPDX-License-Identifier: Apache-2.0
// What the experiments are, as data: regimes that strain low precision, and the arms that are compared in each.
//
// Goals: one table a reader can check and extend. Non-goals: running anything; results.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gnmr::lab {

/// What an arm's settings need besides its texts.
enum class ArmRule {
  plain,         // nothing
  apart,         // nothing; it is trained under other conditions and has no part in the gap
  random_units,  // the mean share in recovery of the arm that it needs, with the same seed
  ends_high,     // the names of the units, from the arm that it needs, with the same seed
};

/// One way of training that is compared with the others.
struct Arm {
  std::string name;   // a word, part of file names
  std::string label;  // for people
  std::string about;
  std::vector<std::string> texts = {};  // what it changes, as settings_from_texts reads it
  ArmRule rule = ArmRule::plain;
  std::string needs = {};  // the arm whose cell of the same seed must be there first; empty: none
};

/// Circumstances in which low precision has a hard time.
struct Regime {
  std::string name;
  std::string about;
  std::vector<std::string> texts;
  std::string recipe_json = {};  // a recipe that is not built in; empty: `texts` name one
};

/// The built-in regimes.
const std::vector<Regime>& regimes();

/// The regime of that name; an `Error` that lists the names where there is none such.
const Regime& find_regime(std::string_view name);

/// The arms of `gnmr lab stress`.
const std::vector<Arm>& stress_arms();

/// Those of the names, in the order of the table; an `Error` for a name that is not known, or an arm that needs another
/// one that was not named.
std::vector<Arm> choose_arms(const std::vector<Arm>& all, std::span<const std::string> names);

/// The same for the arms of `gnmr lab stress`.
std::vector<Arm> choose_arms(std::span<const std::string> names);

/// What every cell of `gnmr lab stress` has in common.
const std::vector<std::string>& stress_texts();

/// The arms of `gnmr lab demo`: those with injected faults, and a healthy run.
const std::vector<Arm>& demo_arms();

/// What the cells of `gnmr lab demo` have in common.
const std::vector<std::string>& demo_texts();

}  // namespace gnmr::lab
