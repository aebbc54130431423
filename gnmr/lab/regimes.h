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
  random_total,  // all of its share of high precision, reruns included
  ends_high,     // the names of the units, from the arm that it needs, with the same seed
  late_high,     // the step from which on everything runs high, from the number of steps
};

/// The share of the steps, at the end, in which `late_high` runs everything high.
inline constexpr double kLateShare = 0.15;

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

/// Arms that make sense in every suite: runs without faults and oracles, rules that people use, and parts of GNMR
/// alone. `low` is the suite's arm without recovery, `gnmr` that with all of it.
std::vector<Arm> common_arms(const std::string& low, const std::string& gnmr);

/// The options of a run that has no budget.
const std::vector<std::string>& no_budget();

/// Those of the names, in the order of the table, then those with other settings (`gnmr:patrol=1,max_o=4`, of a rival
/// its parameters: `zclip:z=3`). `all` is every arm. An `Error` for a name that is not known, wrong settings, or an arm
/// that needs another one that was not named.
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
