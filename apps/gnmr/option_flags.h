// SPDX-License-Identifier: Apache-2.0
// The controller's options on a command line: --preset, --config and a flag for every option.
//
// All of it is derived from gnmr::option_specs().
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gnmr/core/options.h"

namespace CLI {
class App;
}

namespace gnmr::app {

/// Collects flags; `options` puts them together after the command line has been read.
class OptionFlags {
 public:
  /// Adds the flags to `command`; this object must outlive it.
  void add_to(CLI::App& command);

  /// The preset, the file and the flags together: a flag wins over the file, and both win over the preset. `--preset`
  /// wins over the preset that the file names.
  Options options() const;

  /// The options that the file or a flag names.
  std::vector<std::string> named() const;

  /// The options that a flag names.
  std::vector<std::string> named_by_flags() const;

  /// The file that was given with --config; empty: none.
  const std::string& config_path() const { return config_path_; }

 private:
  std::string preset_;
  std::string config_path_;
  std::map<std::string, std::string> values_;  // option name to what was written
};

}  // namespace gnmr::app
