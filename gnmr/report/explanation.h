// SPDX-License-Identifier: Apache-2.0
// The story of a run as one text: what `gnmr explain` prints.
//
// Goals: the program and the Python package print the same. Non-goals: flags, standard output.
#pragma once

#include <string>

#include "gnmr/report/story.h"

namespace gnmr::report {

/// Reads what a story is made from: the directory of a run, or a journal (plain or .gz; `-` is standard input). An
/// `Error` names what was looked for.
RunFiles read_run_to_explain(const std::string& path);

/// The whole story for people, in lines; control characters from files are replaced.
std::string explanation_text(const Story& story, const StorySettings& settings);

}  // namespace gnmr::report
