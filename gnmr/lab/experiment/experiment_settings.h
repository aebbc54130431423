// SPDX-License-Identifier: Apache-2.0
// What an experiment on a training run is asked to do: faults, an oracle, outliers, a rival's rule.
//
// The settings have their place among those of a run, in --help and in run.json. gnmr/run carries them and asks only
// who decides; gnmr/lab/experiment_check.h says which are right; gnmr/lab/injection and gnmr/lab/rivals do what they
// ask for.
//
// Goals: settings can be checked, and help printed, where there is no torch. Non-goals: carrying anything out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gnmr/lab/experiment/fault_kinds.h"

namespace gnmr::lab {

using Texts = std::vector<std::string>;

// X(type, name, default, group, value, help)
#define GNMR_EXPERIMENT_SETTINGS(X)                                                                             \
  X(Texts, faults, {}, "Faults", "KIND...",                                                                     \
    "Inject faults, to see what happens (docs/faults.md; KIND:once: gone in a rerun):" GNMR_FAULT_NAMES)        \
  X(std::int64_t, fault_every, 12, "Faults", "N", "Mean number of steps from one injected fault to the next")   \
  X(std::int64_t, fault_steps, 5, "Faults", "N", "Steps that an injected fault lasts")                          \
  X(std::int64_t, fault_layers, 1, "Faults", "N",                                                               \
    "Layers in which an injected fault begins at once; more than there are: all")                               \
  X(std::int64_t, fault_from, 40, "Faults", "N", "First step that may have one")                                \
  X(double, fault_strength, 64, "Faults", "X",                                                                  \
    "How strong: saturate cuts inputs at 1/X of their largest; overflow multiplies those above 1/8 of it by X") \
  X(std::int64_t, fault_seed, 1, "Faults", "N", "Seed of where and when")                                       \
  X(bool, oracle, false, "Faults", "", "Instead of a detector: layers with an injected fault are in recovery")  \
  X(bool, harm, false, "Faults", "",                                                                            \
    "Measure how far each injected fault moves the gradient of its batch, to harm.jsonl (runs steps twice)")    \
  X(std::int64_t, transplant_at, 0, "Faults", "N",                                                              \
    "Before this step outliers are transplanted into each SwiGLU: channels of `up` become larger, columns of"   \
    " `down` as much smaller; 0: never")                                                                        \
  X(std::int64_t, transplant_channels, 4, "Faults", "N", "How many channels of each")                           \
  X(double, transplant_factor, 64, "Faults", "X", "How many times as large they become")                        \
  X(std::string, rival, "", "Faults", "RULE",                                                                   \
    "What others do to gradients, for comparison: zclip, adagc, stable-spam, olmo-skip (docs/rivals.md)")

/// All settings of an experiment; the defaults ask for none.
struct ExperimentSettings {
#define GNMR_DECLARE(type, name, default_value, group, value, help) type name = default_value;
  GNMR_EXPERIMENT_SETTINGS(GNMR_DECLARE)
#undef GNMR_DECLARE

  /// Whether anything is asked for.
  bool is_wanted() const { return !faults.empty() || oracle || harm || transplant_at > 0 || !rival.empty(); }

  /// Who decides, or changes gradients, instead of the controller, in a word; empty: nobody.
  std::string decider() const { return oracle ? "oracle" : rival.substr(0, rival.find(':')); }

  bool operator==(const ExperimentSettings&) const = default;
};

}  // namespace gnmr::lab
