// SPDX-License-Identifier: Apache-2.0
// What a journal records of recoveries: who was in high precision when, and what happened to each unit.
//
// Goals: journals that begin or end in the middle, that lost lines, or whose units changed.
// Non-goals: judging the decisions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gnmr/io/journal_reader.h"
#include "gnmr/run/high_share.h"

namespace gnmr::report {

/// How a recovery ended.
enum class RecoveryEnd : std::uint8_t { released = 0, futile = 1, open = 2 };

/// One unit in recovery, from the first to the last step that it ran in high precision.
struct Recovery {
  std::size_t unit = 0;
  std::int64_t first_step = 0;
  std::int64_t last_step = 0;
  RecoveryEnd end = RecoveryEnd::released;
  std::optional<std::int64_t> admitted_step = {};  // that decided it; absent where it began before the journal
  bool standing = false;                           // its error was always far above that of other units
};

/// A unit that asked for recovery and found no room.
struct Denial {
  std::size_t unit = 0;
  std::int64_t step = 0;
};

/// What happened to one unit in one step, in words such as `risk, admitted`.
struct UnitEvent {
  std::int64_t step = 0;
  std::size_t unit = 0;
  std::string what;
  std::optional<double> ratio = {};
  std::optional<double> delta = {};
  std::optional<double> fall = {};
  std::optional<double> severity = {};
};

/// Units in recovery in one step.
struct InUse {
  std::int64_t step = 0;
  std::uint64_t units = 0;
};

/// A journal, as recoveries.
struct RecoveryHistory {
  std::vector<std::string> units;  // names; those of the header first, in its order
  std::vector<std::uint64_t> events_of_unit;
  std::vector<Recovery> recoveries;     // by first step
  std::vector<Denial> denials;          // that were written down
  std::uint64_t denied_count = 0;       // all
  std::vector<UnitEvent> events;        // by step
  std::vector<InUse> in_use;            // by step
  std::uint64_t common_steps = 0;       // steps in which the cause was common to the units
  std::optional<std::uint32_t> budget;  // units in recovery at one time, from the header's options
};

/// How much of the run was in recovery.
struct RecoveryShare {
  double mean = 0;                           // of all units in all steps; 0 where there are none
  double peak = 0;                           // of all units
  std::uint64_t most = 0;                    // units at one time
  std::optional<run::HighShares> high = {};  // by reason, with reruns; where metrics.jsonl says so
};

/// Goes through a journal once.
RecoveryHistory recovery_history(const io::Journal& journal);

/// Adds up `in_use`; without `high`.
RecoveryShare recovery_share(const RecoveryHistory& history);

}  // namespace gnmr::report
