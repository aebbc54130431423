// SPDX-License-Identifier: Apache-2.0
// Runs suites of the lab and prints what they come to. The flags are in lab_command.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gnmr::app {

/// What `gnmr lab stress` and `gnmr lab demo` have in common.
struct LabArguments {
  std::string out;                  // empty: the command's own
  std::int64_t steps = 0;           // 0: the regime's
  std::size_t jobs = 0;             // cells at a time; 0: as many as cores
  std::int64_t threads = 0;         // of a cell; 0: cores / jobs
  std::int64_t stall_limit = 1800;  // seconds
  bool resume = false;
  bool quiet = false;
  std::vector<std::string> train = {};  // NAME=VALUE
};

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
