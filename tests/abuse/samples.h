// SPDX-License-Identifier: Apache-2.0
// Valid files of every kind that the program reads, each with the command that reads it.
#pragma once

#include <string>
#include <vector>

#include "abuse/command.h"
#include "abuse/tally.h"

namespace gnmr::abuse {

/// What must hold beyond a documented exit status.
enum class Promise {
  refused_or_read,      // damage cannot always be noticed: any result, or a message
  noticed_or_harmless,  // of a checkpoint: a message, or the same result as without damage
};

/// A file that is damaged, and what is then run.
struct Sample {
  std::string name;     // of the table's row
  std::string folder;   // that is copied for each case
  std::string file;     // that is damaged, relative to it
  Words command;        // without the program; paths relative to the copy
  bool trains = false;  // torch needs more memory and time
  Promise promise = Promise::refused_or_read;
  std::string conflict = {};  // what a message says instead of a file where two good inputs contradict each other
};

/// The run that `train --resume` of a sample continues, within its folder, and the step that it ends with.
inline constexpr const char* kTrainedRun = "run";
inline constexpr std::int64_t kTrainedSteps = 8;
inline constexpr std::int64_t kNewestStep = 6;  // of the checkpoints that a sample has
inline constexpr std::int64_t kEarlierStep = 3;

/// Writes all samples under `folder`; `trained` gets those that train, where the program can.
void make_samples(const Settings& settings, const std::string& folder, std::vector<Sample>& quick,
                  std::vector<Sample>& trained);

}  // namespace gnmr::abuse
