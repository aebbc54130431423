// SPDX-License-Identifier: Apache-2.0
// Settings of a training run as texts `NAME=VALUE`, and as the flags of `gnmr train`.
//
// Regimes, arms and users say what they change in one form; what comes out is a `TrainSettings`, and from that the
// command line of a child process.
//
// Goals: one reader for built-in and users' texts; a command that does the same when it is typed by hand.
// Non-goals: which settings make sense together (gnmr/run validates them).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gnmr/run/train_settings.h"

namespace gnmr::lab {

/// One text, taken apart: `lr=0.01`, `max-o=3`, `faults=saturate overflow`.
struct SettingText {
  std::string name;   // with underscores
  std::string value;  // what stands behind the first `=`; may be empty
};

/// Takes a text apart; an `Error` that shows the form where there is no `=` or no name.
SettingText parse_setting_text(std::string_view text);

/// The defaults changed by the texts in their order, a later one winning. Names are those of training settings, of the
/// controller's options, and `preset`, which comes before all options. Lists are words separated by blanks. An `Error`
/// names the text that is wrong; the result is validated.
run::TrainSettings settings_from_texts(std::span<const std::string> texts);

/// The options that a file of options (gnmr/io/options_json.h) names or its preset changes, as such texts. The `Error`
/// begins with the path.
std::vector<std::string> option_texts(const std::string& options_path);

/// The settings and options that differ from their defaults, by name, as texts; in the order of their declaration.
std::vector<SettingText> changed_settings(const run::TrainSettings& settings);

/// The flags of `gnmr train` that give these settings: those that differ from the defaults, but for options without
/// effect.
std::vector<std::string> train_arguments(const run::TrainSettings& settings);

/// Arguments as one line for a shell, quoted where they must be.
std::string shell_line(std::span<const std::string> arguments);

/// The names of the settings and options that differ, in the order of their declaration.
std::vector<std::string> changed_settings(const run::TrainSettings& before, const run::TrainSettings& now);

}  // namespace gnmr::lab
