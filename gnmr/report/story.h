// SPDX-License-Identifier: Apache-2.0
// The story of a run, from its journal: a summary, and what happened, episode by episode.
//
// Goals: runs of any length in an output of bounded size, the most important episodes first to stay; the same values as
// words and as JSON; the numbers of the page of a run. Non-goals: charts (report.h), what the journal does not hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gnmr/report/audit.h"
#include "gnmr/report/run_files.h"
#include "gnmr/report/worth.h"

namespace gnmr::report {

/// Which episodes and recoveries are shown; the summary and the sums are of the whole run.
struct StorySettings {
  std::size_t limit = 40;      // episodes at most, and recoveries; 0: all
  std::string unit_glob = {};  // only those with such a unit; empty: all
  std::optional<std::int64_t> from_step = {};
  std::optional<std::int64_t> to_step = {};
};

/// The alarms of a run.
struct AlarmCounts {
  std::uint64_t steps = 0;      // with a unit at risk, or run again
  std::uint64_t risks = 0;      // unit-steps
  std::uint64_t dismissed = 0;  // alarms of the norms that a patrol answered
  std::uint64_t capped = 0;     // steps in which `max_high_share` denied a rerun or a unit
  std::uint64_t spent = 0;      // alarms that had no rerun: a limit, or no free place
};

/// The recoveries of a run, and how they ended.
struct RecoveryCounts {
  std::uint64_t all = 0;
  std::uint64_t by_error = 0;  // of these; those that are neither by error nor standing are by norms
  std::uint64_t standing = 0;  // of these, standing ones
  std::uint64_t futile = 0;
  std::uint64_t relapses = 0;
  std::uint64_t open = 0;  // at the end
};

/// What errors.bin says.
struct ErrorFacts {
  std::optional<ChronicUnits> chronic = {};  // where errors were written and can be read
  std::string problem = {};                  // why they cannot be read
};

/// The whole run in numbers.
struct StorySummary {
  std::string name;  // of the run; may be empty
  std::uint64_t steps = 0;
  std::int64_t first_step = 0, last_step = 0;
  std::uint64_t units = 0;
  std::optional<std::uint32_t> budget = {};
  bool watch_only = false;
  std::string mode;  // the last one; empty: none was given
  std::uint64_t mode_changes = 0;
  AlarmCounts alarms = {};
  std::vector<std::pair<std::string, std::uint64_t>> verdicts = {};  // of reruns
  RecoveryCounts recoveries = {};
  std::uint64_t denials = 0;
  std::uint64_t common_steps = 0;
  RecoveryShare share = {};
  ErrorFacts errors = {};
  RerunWorth worth = {};
  std::uint64_t resumes = 0;
  std::uint64_t dropped = 0;  // lines that could not be written
  bool torn = false;
};

/// One unit that went to recovery.
struct Admission {
  io::JournalEvent event;                            // what its norm said
  bool by_error = false;                             // its norm was not at risk: the error of its low path was
  Recovery recovery = {};                            // when, and how it ended
  bool relapse = false;                              // soon after its last release
  std::optional<std::int64_t> released_before = {};  // the step of that release, where it is known
};

/// What an episode is about.
enum class EpisodeKind : std::uint8_t { recovery, common, denied, mode, resume, note };

/// `"recovery"`, `"common"`, `"denied"`, `"mode"`, `"resume"` or `"note"`.
std::string_view to_string(EpisodeKind kind);

/// A stretch of the run that belongs together: a step that was run again or admitted somebody, with what became of the
/// units; successive steps with a common cause, or with nothing but denials; a mode, a resume, a note.
struct Episode {
  EpisodeKind kind = EpisodeKind::recovery;
  std::int64_t first_step = 0, last_step = 0;
  std::vector<io::JournalTrial> reruns = {};        // their lists cut to `kMostListed`
  std::uint64_t outliers = 0;                       // listed or not
  std::uint64_t risks = 0;                          // units at risk, at most in one step
  std::optional<io::JournalEvent> worst_risk = {};  // the most severe
  std::vector<Admission> admitted = {};             // at most `kMostListed`
  std::uint64_t admitted_count = 0;
  std::vector<std::string> denied = {};  // names, each once, at most `kMostListed`
  std::uint64_t denied_count = 0;
  std::string text = {};      // of a mode or a note
  double weight = 0;          // the heaviest stay where there are too many
  bool is_asked_for = false;  // has a unit that fits the glob, where there is one
};

/// Units that an episode lists.
inline constexpr std::size_t kMostListed = 32;

/// All of it.
struct Story {
  StorySummary summary;
  std::vector<Episode> episodes;          // by step
  std::uint64_t episode_count = 0;        // that were asked for, shown or not
  Audit audit;                            // of the whole run
  std::vector<RecoveryAudit> recoveries;  // of these, the ones that are shown, by step
  std::uint64_t recovery_count = 0;       // that were asked for, shown or not
};

/// The story of a run that has a journal.
Story make_story(const RunFiles& run, const StorySettings& settings);

/// The summary for people: lines of a name and a value.
std::vector<std::string> summary_lines(const StorySummary& summary);

/// An episode for people: the verdict first, then what the norms said, what was done and what became of it.
std::vector<std::string> episode_lines(const Episode& episode, const StorySummary& summary);

/// What each recovery that is shown was worth and cost, for people: a table, the sums of all in its last row.
std::vector<std::string> recovery_lines(const Story& story);

/// The story for programs: one JSON object, without a line end.
std::string story_json(const Story& story);

}  // namespace gnmr::report
