// SPDX-License-Identifier: Apache-2.0
// Files of records as lines, written in the background: `append_line(std::string&, const Record&)` makes the line.
//
// A writer belongs to one thread at a time; but for the constructor nothing throws or waits for the disk.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "gnmr/io/record_sink.h"

namespace gnmr::io {

/// Where and how to write.
struct LineFile {
  std::string path;
  ExistingFile existing = ExistingFile::refuse;
  std::size_t queue_bytes = std::size_t{4} << 20U;            // of lines that wait for the disk
  std::string (*drop_note)(std::uint64_t dropped) = nullptr;  // as BackgroundSettings has it
};

/// What writers of lines have in common.
class LineWriter {
 public:
  /// Opens the file; an `Error` where that fails.
  explicit LineWriter(const LineFile& lines) {
    RecordFile opened = open_record_file(lines.path, lines.existing, {});
    had_records_ = opened.had_records;
    sink_ = make_background_sink(std::move(opened.file),
                                 {.shape = {}, .queue_bytes = lines.queue_bytes, .drop_note = lines.drop_note});
  }

  /// Waits until all lines are with the operating system, at most so long; whether they are.
  bool flush(std::chrono::milliseconds longest = std::chrono::seconds(2)) { return sink_->flush(longest); }

  /// `flush`, and the end; lines that come later are lost.
  bool close(std::chrono::milliseconds longest = std::chrono::seconds(2)) { return sink_->close(longest); }

  /// Lines that were lost so far.
  std::uint64_t dropped() const { return sink_->dropped(); }

 protected:
  bool had_records() const { return had_records_; }

  template <typename Record>
  void append(const Record& record) {
    line_.clear();
    append_line(line_, record);
    sink_->append(line_);
  }

 private:
  std::unique_ptr<RecordSink> sink_;
  std::string line_;  // reused
  bool had_records_ = false;
};

/// Writes one kind of record.
template <typename Record>
class RecordWriter : public LineWriter {
 public:
  RecordWriter(const std::string& path, ExistingFile existing) : LineWriter({.path = path, .existing = existing}) {}

  /// Adds a line.
  void write(const Record& record) { append(record); }
};

}  // namespace gnmr::io
