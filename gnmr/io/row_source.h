// SPDX-License-Identifier: Apache-2.0
// Rows as a file has them, and the reader that puts their steps in order.
//
// Goals: a format says only what its rows are; that steps increase, and what a restart drops, stands in one place.
// Non-goals: rows of different width.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gnmr/core/message_text.h"
#include "gnmr/io/trace.h"

namespace gnmr::io {

/// The rows of a file in its own order, whatever their steps.
class RowSource {
 public:
  RowSource() = default;
  virtual ~RowSource() = default;
  RowSource(const RowSource&) = delete;
  RowSource& operator=(const RowSource&) = delete;

  /// Names of the units, as `TraceReader` gives them.
  virtual const std::vector<std::string>& units() const = 0;

  /// Reads the next row; false at the end.
  virtual bool next(TraceRow& row) = 0;

  /// Whether `rewind` works.
  virtual bool can_rewind() const = 0;

  /// Starts again at the first row; notes and counts too.
  virtual void rewind() = 0;

  /// Where the row given last stands, for messages.
  virtual std::string where() const = 0;

  /// Bytes of the file taken so far.
  virtual std::uint64_t bytes_read() const = 0;

  /// Bytes of the file; 0 where that is not known.
  virtual std::uint64_t bytes_total() const = 0;

  /// What a user should know besides the rows.
  virtual std::vector<std::string> notes() const { return {}; }
};

/// A reader that gives the rows of `rows` with steps that increase strictly: one that does not is an `Error`, or with
/// `allow_restart` drops the earlier rows that it overtakes.
std::unique_ptr<TraceReader> in_step_order(std::unique_ptr<RowSource> rows, bool allow_restart);

}  // namespace gnmr::io
