// SPDX-License-Identifier: Apache-2.0
// The rules as the trainer takes them.
//
// Goals: a thin layer of torch over the rules on numbers (rule_options.h, zclip.h, adagc.h, stable_spam.h,
// olmo_skip.h). Non-goals: checking a text where there is no torch (parse_rule does).
// A rule is used by one thread at a time; Stable-SPAM's changes the gradients it is shown, on their device.
#pragma once

#include <memory>
#include <string_view>

#include "gnmr/train/gradient_rule.h"

namespace gnmr::lab {

/// The rule that a text asks for: `zclip`, `adagc:beta=0.99`; an `Error` lists the rules and their parameters.
///
/// In a step where a sum of squares (or, for olmo-skip, the loss) is not finite every rule asks for the update to be
/// left out and changes no state.
std::unique_ptr<train::GradientRule> make_rule(std::string_view text);

}  // namespace gnmr::lab
