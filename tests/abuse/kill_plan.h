// SPDX-License-Identifier: Apache-2.0
// What is trained, and when it is killed: both follow from the seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "abuse/command.h"

namespace gnmr::abuse {

/// A run: very small, so that it takes about a second.
struct RunPlan {
  std::string name;  // in words, for tables: lag 0, lag 1, two processes
  Words flags;       // of `gnmr train`, without --out and --resume
  int processes = 1;
};

/// What a signal waits for. All but `any` and `start` are followed by a random delay of some milliseconds.
enum class Moment {
  start,      // while the program is being loaded and set up
  any,        // at any time in as long as a whole run takes
  line,       // some steps later
  writing,    // a checkpoint is being written
  renamed,    // a checkpoint has just got its name: older ones are being removed
  last_step,  // the last step is done: evaluation, last checkpoint, end
};

/// One signal.
struct Stop {
  Moment moment = Moment::any;
  int signal = 0;
  int rank = -1;          // of several processes: which; -1: all (SIGKILL), or the launcher
  std::size_t count = 1;  // how many lines or checkpoints it waits for
  double share = 0;       // of the time that the moment leaves open
};

/// A run with its signals.
struct KillPlan {
  std::uint64_t run = 0;  // the number of its RunPlan: several plans share a run
  std::vector<Stop> stops;
};

/// The folder has config.json, text.txt, int4-delayed.json and weights/.
RunPlan make_run_plan(std::uint64_t seed, std::uint64_t number, const std::string& folder, bool two_processes);

/// How many different runs there are.
inline constexpr std::uint64_t kRunPlans = 20;

/// Every fifth run has two processes.
constexpr bool has_two_processes(std::uint64_t run) { return run % 5 == 4; }

KillPlan make_kill_plan(std::uint64_t seed, std::uint64_t number);

/// A moment in words.
const char* text_of(Moment moment);

}  // namespace gnmr::abuse
