// SPDX-License-Identifier: Apache-2.0
// Reads journals, also those of runs that were killed, resumed, or are still writing.
//
// Goals: a line at a time in constant memory; a torn last line is reported, not an error; any other bad line is an
// `Error` with its number; kinds that are not known are skipped. Non-goals: following a journal while it grows,
// repairing it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gnmr/io/byte_source.h"
#include "gnmr/io/journal.h"
#include "gnmr/io/line_reader.h"

namespace gnmr::io {

/// Gives the records of a journal in the order of the file.
class JournalReader {
 public:
  /// Opens a file, plain or .gz, or standard input for `-`.
  explicit JournalReader(const std::string& path) : JournalReader(open_byte_source(path)) {}

  /// Reads from a source.
  explicit JournalReader(std::unique_ptr<ByteSource> source) : source_(std::move(source)), lines_(*source_) {}

  /// The next record of a known kind; false at the end.
  bool next(JournalRecord& record);

  /// The number of the line read last, from 1.
  std::uint64_t line_number() const { return lines_.line_number(); }

  /// Whether the journal ended within a line; that line is not given. Known when `next` has returned false.
  bool torn() const { return torn_; }

 private:
  std::unique_ptr<ByteSource> source_;
  LineReader lines_;
  bool torn_ = false;
};

/// All records of one step.
struct JournalStepEntry {
  std::int64_t number = 0;
  std::optional<JournalStep> step = {};  // absent where only events or trials were written
  std::vector<JournalEvent> events = {};
  std::vector<JournalTrial> trials = {};
};

/// Units that there was no room for in a step; of many only the most severe ones have events.
std::uint64_t denied_in(const JournalStepEntry& entry);

/// A journal in memory, each step as it was last recorded.
struct Journal {
  std::optional<JournalHeader> header;  // the last one
  std::vector<JournalStepEntry> steps;  // ascending
  std::vector<JournalMode> modes;
  std::vector<JournalResume> resumes;
  std::vector<JournalNote> notes;
  std::uint64_t dropped = 0;  // lines that the writer could not write
  bool torn = false;
};

/// Reads a whole journal. Where a run was resumed, what was recorded before of the next step and of later ones is
/// forgotten: they are run again, or the run never came so far again.
Journal read_journal(const std::string& path);

/// Reads a whole journal from a reader.
Journal read_journal(JournalReader& reader);

}  // namespace gnmr::io
