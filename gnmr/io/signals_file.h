// SPDX-License-Identifier: Apache-2.0
// Numbers of all units in chosen steps, for heat maps: fixed binary rows in float32 (docs/files.md has the layout).
// signals.bin has one number per unit, its ratio; errors.bin has one per unit and site, its relative error.
//
// Goals: a row is written without formatting and found without reading the others; a training step never waits for it.
// Non-goals: names (the journal's header has them), compression.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gnmr/core/controller.h"
#include "gnmr/io/file_descriptor.h"
#include "gnmr/io/record_sink.h"

namespace gnmr::io {

/// The versions: 1 has one number per unit, 2 one per unit and site. A reader refuses others.
inline constexpr std::uint32_t kSignalsVersion = 1;
inline constexpr std::uint32_t kSitesVersion = 2;

/// Where and how to write.
struct SignalsSettings {
  std::string path;
  std::size_t unit_count = 0;
  std::uint32_t sites = 0;  // numbers per unit, at most `kMostSites`; 0: one, without sites (version 1)
  ExistingFile existing = ExistingFile::refuse;
  bool in_background = true;                         // false: errors are thrown
  std::size_t queue_bytes = std::size_t{64} << 20U;  // of rows that wait for the disk
};

/// Writes rows. It belongs to one thread at a time.
class SignalsWriter {
 public:
  /// Opens the file; an `Error` where that fails, or where it is resumed and is for other units or sites.
  explicit SignalsWriter(const SignalsSettings& settings);

  /// The ratios of the controller's last observation; NaN where a unit has none. In the background it never throws.
  void write(std::int64_t step, const Controller& controller);

  /// Any numbers, units x sites; NaN: none. Missing ones at the end are NaN.
  void write(std::int64_t step, std::span<const double> values);

  /// Waits until all rows are with the operating system, at most so long; whether they are.
  bool flush(std::chrono::milliseconds longest = std::chrono::seconds(2));

  /// `flush`, and the end; rows that come later are lost.
  bool close(std::chrono::milliseconds longest = std::chrono::seconds(2));

  /// Rows that were lost so far.
  std::uint64_t dropped() const { return sink_->dropped(); }

 private:
  std::unique_ptr<RecordSink> sink_;
  std::size_t unit_count_;
  std::size_t row_values_;
  std::string row_;             // reused
  std::vector<double> ratios_;  // reused
};

/// What a file says of its rows.
struct SignalsHeader {
  std::size_t unit_count = 0;
  std::uint32_t sites = 0;  // 0: version 1

  std::size_t bytes() const { return sites == 0 ? 16 : 20; }
  std::size_t row_values() const { return sites == 0 ? unit_count : unit_count * sites; }
  bool operator==(const SignalsHeader&) const = default;
};

/// One row.
struct SignalsRow {
  std::int64_t step = 0;
  std::vector<float> values;  // units x sites; NaN: none
};

/// Reads rows in the order of the file. After a resumed run a step may come twice: the last one counts.
class SignalsReader {
 public:
  /// Opens a file; an `Error` with its path where it is none of ours.
  explicit SignalsReader(const std::string& path);

  std::size_t unit_count() const { return header_.unit_count; }

  /// Numbers per unit; 0: one, without sites.
  std::uint32_t sites() const { return header_.sites; }

  /// Whole rows in the file when it was opened.
  std::uint64_t row_count() const { return row_count_; }

  /// Whether bytes of a torn row followed the last whole one.
  bool torn() const { return torn_; }

  /// The next row; false after the last whole one. The row's memory is reused.
  bool next(SignalsRow& row);

 private:
  std::string path_;
  FileDescriptor file_;
  SignalsHeader header_;
  std::uint64_t row_count_ = 0;
  std::uint64_t rows_read_ = 0;
  bool torn_ = false;
  std::string bytes_;  // reused
};

}  // namespace gnmr::io
