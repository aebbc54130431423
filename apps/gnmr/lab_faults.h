// SPDX-License-Identifier: Apache-2.0
// `gnmr lab faults`: the fault lab. The flags are in lab_command.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gnmr/lab_run.h"

namespace gnmr::app {

/// What `gnmr lab faults` is asked for.
struct FaultsArguments {
  LabArguments common;
  std::vector<std::string> faults;     // kinds, `none`, `required`, `all`
  std::vector<std::string> strengths;  // of a sweep; empty: the usual one
  std::vector<std::string> at_once;    // likewise; layers, or `all`
  std::vector<std::string> arms{"required"};
  std::vector<std::int64_t> seeds{0, 1, 2};
  std::string options;            // a file of options; empty: the built-in ones
  std::vector<std::string> from;  // results to make tables of, instead of running anything
  std::string collect;            // where results are kept; empty: nowhere
};

/// Runs one suite a fault, or reads results; prints and writes the tables. The exit status.
int run_faults(const FaultsArguments& arguments);

}  // namespace gnmr::app
