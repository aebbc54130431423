// SPDX-License-Identifier: Apache-2.0
// Whether a run that was stopped and resumed has left what a run that was left alone leaves.
#pragma once

#include <cstdint>
#include <string>

namespace gnmr::abuse {

/// The newest complete checkpoint of a run; 0: none.
std::int64_t newest_checkpoint(const std::string& run);

/// The path of a checkpoint.
std::string checkpoint_folder(const std::string& run, std::int64_t step);

/// The first file of the checkpoint of `step` that differs (weights, optimizer, low paths, controller, config.json);
/// empty: all are byte-identical. trainer.json and sums over it hold what differs between runs: paths and times.
std::string checkpoint_difference(const std::string& expected_run, const std::string& run, std::int64_t step);

/// What differs between two finished runs in the last checkpoint, metrics, journal, signals, evidence, harm, faults and
/// traces, after what a resume supersedes is dropped; empty: nothing. Also what should not be there any more.
std::string run_difference(const std::string& expected, const std::string& run);

}  // namespace gnmr::abuse
