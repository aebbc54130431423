// SPDX-License-Identifier: Apache-2.0
// `gnmr replay`: what the controller would have done on a recorded run.
#pragma once

#include <string>
#include <vector>

#include "gnmr/core/options.h"
#include "gnmr/trace_input.h"

namespace gnmr::app {

/// Everything that the command line says about a replay.
struct ReplayRequest {
  TraceRequest input;
  std::string config_path;  // already read into `options`
  Options options;
  std::vector<std::string> named_options;  // that the command line or the file names
  std::string decisions_path;
  std::string journal_path;
  std::string signals_path;
  int signals_every = 1;
  std::string load_state_path;
  std::string save_state_path;
  bool json_summary = false;
  bool quiet = false;
  bool live = false;
  double steps_per_second = 0;
};

/// Runs it; throws `CommandError`.
void replay(const ReplayRequest& request);

}  // namespace gnmr::app
