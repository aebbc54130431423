// SPDX-License-Identifier: Apache-2.0
// What the fault lab is, as data: kinds of faults, the arms that are compared under each, and what they have in common.
//
// Goals: one table a reader can check and extend; an arm changes only what defines it, so that one frozen set of
// options serves all. Non-goals: what a fault does (gnmr/lab/injection), running anything, results.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gnmr/lab/regimes.h"

namespace gnmr::lab {

/// What is injected in one suite.
struct FaultSubject {
  std::string name;                     // a kind, `KIND:once`, with `,strength=4,layers=3` behind it; `none`: healthy
  std::string folder = {};              // its suite's, in that of all
  std::string site = {};                // before-cast, cast, after-cast, run; empty for `none`
  std::vector<std::string> texts = {};  // what it changes, as settings_from_texts reads it
  double strength = 0;                  // 0: the usual one
  std::int64_t layers = 0;              // at fault at once; 0: one, kAllLayers: all

  /// Whether it is one of a sweep over strength and number of layers.
  bool is_of_sweep() const { return strength > 0 || layers > 0; }
};

/// More layers than there are.
inline constexpr std::int64_t kAllLayers = 1000000;

/// The subject of that name; an `Error` that lists the names where there is none such.
FaultSubject fault_subject(std::string_view name);

/// The subjects of names among which may be `required` and `all` (all kinds, not `none` or `:once`); each once, in
/// the order in which they come.
std::vector<FaultSubject> fault_subjects(std::span<const std::string> names);

/// The names with each strength and each number of layers (`3`, `all`) behind them; nothing of what is empty. An
/// `Error` where a text is no number.
std::vector<std::string> swept_faults(std::span<const std::string> names, std::span<const std::string> strengths,
                                      std::span<const std::string> layers);

/// For people: `saturate (cast)`, `saturate, strength 4, 3 layers (cast)`.
std::string subject_title(const FaultSubject& subject);

/// Every arm of `gnmr lab faults`.
const std::vector<Arm>& fault_arms();

/// The names of the arms without which results say little.
const std::vector<std::string>& required_fault_arms();

/// Those of the names, among which may be `required`, `rivals` and `all`; as choose_arms.
std::vector<Arm> choose_fault_arms(std::span<const std::string> names);

/// What every cell has in common.
const std::vector<std::string>& fault_texts();

/// The controller's options where no file freezes others.
const std::vector<std::string>& fault_option_texts();

}  // namespace gnmr::lab
