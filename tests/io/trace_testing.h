// SPDX-License-Identifier: Apache-2.0
// Helpers for tests of traces and logs: a whole trace in memory, and the message of an error.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/io/trace.h"

namespace gnmr::io::testing {

/// A number that equals itself, so that rows with NaN can be compared.
struct Cell {
  std::optional<double> norm;

  Cell() = default;
  Cell(double value) : norm(value) {}
  Cell(int value) : norm(value) {}

  bool operator==(const Cell& other) const {
    if (norm.has_value() != other.norm.has_value()) return false;
    if (!norm.has_value()) return true;
    return *norm == *other.norm || (std::isnan(*norm) && std::isnan(*other.norm));
  }
};

inline void PrintTo(const Cell& cell, std::ostream* out) {
  if (cell.norm) {
    *out << *cell.norm;
  } else {
    *out << "none";
  }
}

inline const Cell kNone;
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

struct Row {
  std::int64_t step = 0;
  std::vector<Cell> cells;

  bool operator==(const Row&) const = default;
};

inline void PrintTo(const Row& row, std::ostream* out) {
  *out << row.step << ":";
  for (const Cell& cell : row.cells) {
    *out << " ";
    PrintTo(cell, out);
  }
}

struct Trace {
  std::vector<std::string> units;
  std::vector<Row> rows;
  std::vector<std::string> notes;
};

inline Row copy_row(const TraceRow& row) {
  Row copy{.step = row.step, .cells = {}};
  EXPECT_EQ(row.norms.size(), row.sampled.size());
  for (std::size_t i = 0; i < row.norms.size(); ++i) {
    copy.cells.push_back(row.sampled[i] != 0 ? Cell(row.norms[i]) : kNone);
    EXPECT_TRUE(row.sampled[i] != 0 || row.norms[i] == 0);
  }
  return copy;
}

inline Trace read_all(TraceReader& reader) {
  Trace trace{.units = reader.units(), .rows = {}, .notes = {}};
  TraceRow row;
  while (reader.next(row)) trace.rows.push_back(copy_row(row));
  trace.notes = reader.notes();
  return trace;
}

inline Trace read_text(std::string text, const TraceOptions& options = {}) {
  return read_all(*open_trace(memory_byte_source("run", std::move(text)), options));
}

inline Trace read_path(const std::string& path, const TraceOptions& options = {}) {
  return read_all(*open_trace(path, options));
}

/// The message of the `Error` that `call` throws; a test failure where it throws none.
template <typename Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

inline std::string error_in(const std::string& text, const TraceOptions& options = {}) {
  return message_of([&] { read_text(text, options); });
}

/// The path of a file of the shared data; nothing where the data is not on this machine.
inline std::optional<std::string> data_file(const std::string& path) {
  const char* folder = std::getenv("GNMR_DATA_DIR");
  if (folder == nullptr || *folder == '\0') return std::nullopt;
  return std::string(folder) + "/" + path;
}

/// Skips a test that needs a file of the shared data.
#define GNMR_NEEDS_DATA(variable, path)                                                        \
  const auto variable##_or_none = gnmr::io::testing::data_file(path);                          \
  if (!variable##_or_none) GTEST_SKIP() << "GNMR_DATA_DIR is not set; it would hold " << path; \
  const std::string variable = *variable##_or_none

}  // namespace gnmr::io::testing
