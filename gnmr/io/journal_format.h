// SPDX-License-Identifier: Apache-2.0
// Journal records as lines of JSON, and back.
//
// Goals: a step line costs about a microsecond and no allocation once the caller's string is large enough; `kind` comes
// first in each line. Non-goals: files, threads.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gnmr/io/journal.h"

namespace gnmr::io {

/// An event whose numbers come straight from the controller: NaN is not defined and left out.
struct JournalEventView {
  std::int64_t step;
  std::string_view unit;
  JournalEventKind event;
  Signals signals;
  std::uint64_t left;
};

/// Appends a `header` line; `started` may be empty.
void append_header_line(std::string& out, const std::vector<Unit>& units, const Options& options,
                        std::string_view started, std::span<const std::string> sites = {});

/// Appends a `step` line.
void append_line(std::string& out, const JournalStep& record);

/// Appends an `event` line.
void append_line(std::string& out, const JournalEventView& record);

/// Appends a `trial` line.
void append_line(std::string& out, const JournalTrial& record);

/// Appends a `mode` line.
void append_line(std::string& out, const JournalMode& record);

/// Appends a `resume` line.
void append_line(std::string& out, const JournalResume& record);

/// Appends a `note` line.
void append_line(std::string& out, const JournalNote& record);

/// The record in a line, without its line end; nothing for a kind that is not known. An `Error` says what is wrong.
std::optional<JournalRecord> parse_journal_line(std::string_view line);

}  // namespace gnmr::io
