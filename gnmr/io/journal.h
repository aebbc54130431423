// SPDX-License-Identifier: Apache-2.0
// What a journal holds: one record a line (docs/files.md has the fields).
//
// Goals: the same plain values for whoever writes, reads or reports. Non-goals: text (journal_format.h), files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gnmr/core/options.h"
#include "gnmr/core/step.h"
#include "gnmr/core/types.h"

namespace gnmr::io {

/// The version that is written; a reader refuses later ones.
inline constexpr std::int64_t kJournalVersion = 1;

/// Risks of one step are written for at most this many units, the most severe ones.
inline constexpr std::size_t kMostRisksPerStep = 32;

/// The same of units that there was no room for in the budget.
inline constexpr std::size_t kMostDeniedPerStep = 32;

/// A trial names at most this many units, those with the largest excess.
inline constexpr std::size_t kMostUnitsATrial = 512;

/// A rerun whose gradient is at least this far from the alarmed one changed the update by something.
inline constexpr double kHelpfulDistance = 0.1;

/// The first line: what is watched, and how.
struct JournalHeader {
  std::int64_t version = kJournalVersion;
  Options options = {};
  std::vector<Unit> units = {};
  std::string started = {};             // time of day in UTC; may be empty
  std::vector<std::string> sites = {};  // what the sites of errors are called; empty: none, or an older file
};

/// What so many sites are called: `named`, where these are as many; else three are the GEMMs of a layer, as files of
/// older versions have them without names, and others are numbered from 1.
std::vector<std::string> site_names(const std::vector<std::string>& named, std::uint32_t sites);

/// One optimizer step.
struct JournalStep {
  std::int64_t step = 0;
  std::optional<double> loss = {};
  std::uint64_t sampled = 0;  // units with a sample
  std::uint64_t risks = 0;    // units at risk
  bool common = false;
  std::uint64_t recovered = 0;  // units in recovery in the next step
  double cost_share = 0;        // their share of the total cost
  std::uint64_t denied = 0;     // units that there was no room for; their events are those of the most severe ones
  bool capped = false;          // `max_high_share` denied one of them, or a rerun that was due
  std::optional<double> clip_coefficient = {};
  std::string alarm = {};  // of one without a rerun: `dismissed` (a patrol answered it) or `spent`
};

/// What can happen to a unit.
enum class JournalEventKind : std::uint8_t {
  risk,
  admitted,  // to acute recovery
  denied,
  futile,
  released,
  standing,  // admitted to standing recovery, as coarse
  filling,   // likewise, where the budget was not needed for others
};

/// Something that happened to one unit; numbers that are not defined are absent.
struct JournalEvent {
  std::int64_t step = 0;
  std::string unit;
  JournalEventKind event = JournalEventKind::risk;
  std::optional<double> ratio = {};
  std::optional<double> delta = {};
  std::optional<double> fall = {};
  std::optional<double> severity = {};
  std::uint64_t left = 0;  // decisions that it will still be in recovery for
};

/// A step that was run again before its update. What is not known is absent or empty.
struct JournalTrial {
  std::int64_t step = 0;
  std::string verdict = {};               // `numeric`, `common`, `unlocated`; `none`: not judged, as in a replay
  std::vector<std::string> units = {};    // outliers
  std::vector<double> errors = {};        // beside `units`
  std::vector<double> losses = {};        // of the alarmed run of the step, then of the rerun
  double seconds = 0;                     // that the rerun took
  std::string rerun = "trial";            // or `replay`
  std::vector<std::string> places = {};   // beside `units`: `forward`, `input_gradient`, `weight_gradient`
  std::vector<double> excesses = {};      // beside `units`: the error over its limit
  std::optional<double> distance = {};    // how far apart at least the two gradients are, relative to the rerun's
  std::vector<double> norms = {};         // of the whole gradient, in the order of `losses`
  std::optional<std::int64_t> rank = {};  // for the verdict `unlocated`: on which the fault seems to have been
  std::optional<bool> applied = {};       // whether the rerun's gradient made an update
  std::string why = {};                   // what raised the alarm, in words
  std::uint64_t left_out = 0;             // outliers beyond those that are named
};

/// From here on decisions are carried out (armed), only written (watch), or everything runs high.
struct JournalMode {
  Mode mode = Mode::armed;
  std::string why;
  std::optional<std::int64_t> after_step = {};  // the last one recorded before it; found by readers, not written
};

/// The run goes on from a saved state; `step` is the next one.
struct JournalResume {
  std::int64_t step = 0;
};

/// A remark; `dropped` lines could not be written before it.
struct JournalNote {
  std::uint64_t dropped = 0;
  std::string text;
  std::optional<std::int64_t> after_step = {};  // as of a mode
};

/// Any line of a known kind.
using JournalRecord =
    std::variant<JournalHeader, JournalStep, JournalEvent, JournalTrial, JournalMode, JournalResume, JournalNote>;

/// `"risk"`, `"admitted"`, `"denied"`, `"futile"`, `"released"`, `"standing"` or `"filling"`.
std::string_view to_string(JournalEventKind kind);

/// The event of that name, if there is one.
std::optional<JournalEventKind> event_kind(std::string_view name);

/// The mode of that name, if there is one.
std::optional<Mode> mode_kind(std::string_view name);

}  // namespace gnmr::io
