// SPDX-License-Identifier: Apache-2.0
// Directories of runs and suites as a trainer leaves them: a real controller watches made-up norms, so that journal and
// signals are the real thing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gnmr::test {

/// What a sample run is like.
struct SampleRun {
  std::string label = "fp8 + gnmr";
  std::string controller = "gnmr";  // `none`: no journal; `watch`: decisions are not carried out
  std::uint32_t seed = 0;
  std::int64_t steps = 200;
  std::int64_t planned_steps = 200;
  int layers = 4;                  // of seven units
  bool with_faults = true;         // and faults.csv
  double loss_penalty = 0;         // how much worse it ends than it could
  std::string odd_unit_name = {};  // takes the place of the first unit's name
  bool with_trials = false;        // a step was run again for each verdict, and one as a replay
  bool with_errors = true;         // and errors.bin, in which `kChronicUnit` is chronic
};

/// The unit whose errors are always far above those of the others; in its input gradient.
inline constexpr std::size_t kChronicUnit = 3;

/// Writes the directory; files of an earlier run in it are replaced.
void write_sample_run(const std::string& directory, const SampleRun& sample);

/// Writes a suite of four arms and the given seeds; the last run of it is not finished.
void write_sample_suite(const std::string& directory, const std::vector<std::uint32_t>& seeds);

}  // namespace gnmr::test
