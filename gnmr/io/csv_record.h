// SPDX-License-Identifier: Apache-2.0
// Records of a CSV file: quoting of RFC 4180, blanks round a cell that is not quoted ignored.
//
// Goals: exact positions in messages, quoted cells over several lines. Non-goals: speed (csv_trace.cpp has a faster
// way for rows without quotes), other separators.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gnmr/io/line_reader.h"

namespace gnmr::io {

/// One cell of a record.
struct CsvCell {
  std::string text;
  std::uint64_t line = 0;  // on which it begins
  bool quoted = false;
};

/// The record that begins with `line`, the line that `lines` gave last; more lines are fetched where a quoted cell goes
/// on. `file` is for messages; `cells` is filled anew. A stray quote or one that is never closed is an `Error`.
void split_csv_record(const std::string& file, std::string_view line, LineReader& lines, std::vector<CsvCell>& cells);

/// The next record that is not blank; false at the end.
bool next_csv_record(const std::string& file, LineReader& lines, std::vector<CsvCell>& cells);

/// Appends `name` as a cell, quoted where it must be.
void append_csv_cell(std::string& text, std::string_view name);

}  // namespace gnmr::io
