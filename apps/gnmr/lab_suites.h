// SPDX-License-Identifier: Apache-2.0
// `gnmr lab demo` and `gnmr lab stress`. The flags are in lab_command.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gnmr/lab_run.h"

namespace gnmr::app {

/// What `gnmr lab stress` is asked for besides.
struct StressArguments {
  LabArguments common;
  std::vector<std::string> regimes;
  std::vector<std::string> arms;  // empty: all
  std::vector<std::int64_t> seeds{0, 1, 2};
  std::string model;  // empty: the regime's
  std::string max_o;  // empty: the regime's
};

/// What `gnmr lab demo` is asked for besides.
struct DemoArguments {
  LabArguments common;
  std::int64_t seed = 0;
};

/// Runs the regimes one after the other, each in a folder of its own under `out`; the exit status.
int run_stress(const StressArguments& arguments);

/// Runs the demo; the exit status.
int run_demo(const DemoArguments& arguments);

}  // namespace gnmr::app
