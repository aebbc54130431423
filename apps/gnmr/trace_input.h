// SPDX-License-Identifier: Apache-2.0
// A recorded run on the command line: the trace, and what lies beside it. `replay` and `tune` read the same way.
//
// Goals: the same flags, formats and messages; streams. Non-goals: deciding anything.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gnmr/core/types.h"
#include "gnmr/io/trace.h"
#include "gnmr/io/truth.h"
#include "gnmr/live_view.h"

namespace CLI {
class App;
}

namespace gnmr::app {

/// What the command line says of it.
struct TraceRequest {
  std::string path;
  io::TraceOptions options;
  std::string format = "auto";  // to be read into `options`
  std::string units_path;
  std::string truth_path;
};

/// Adds the flags to `command`.
void add_trace_flags(CLI::App& command, TraceRequest& request);

/// Reads `format`; to be called after the command line has been read. Throws `CommandError`.
void check_trace_flags(TraceRequest& request);

/// The runs of the trace where it has several and the command line names none; one or none where it is one run.
std::vector<std::string> runs_to_read(const TraceRequest& request);

/// Opens the trace; `progress` is called for every byte, also while a log is read ahead, and must outlive the reader.
std::unique_ptr<io::TraceReader> open_watched_trace(const TraceRequest& request, ProgressLine& progress);

/// The units of the trace, with costs and groups where there is a file of them.
std::vector<Unit> units_of_trace(const TraceRequest& request, const std::vector<std::string>& names);

/// Whether both paths are one file; `-` is none.
bool is_same_file(const std::string& a, const std::string& b);

/// Ground truth beside the trace: its columns in the order of the trace's units. An `Error` where these differ.
class TruthBeside {
 public:
  TruthBeside(const std::string& path, const std::vector<Unit>& units);

  /// Which units are faulty in a step; none in one that the truth does not have. Steps ascend. Valid until the next
  /// call.
  std::span<const std::uint8_t> at(std::int64_t step);

  /// Reads what the truth has beyond the trace, so that it is checked and counted too.
  void finish();

  /// What a user should know; complete after `finish`.
  std::vector<std::string> notes() const;

 private:
  io::TruthReader reader_;
  std::vector<std::size_t> columns_;
  std::vector<std::uint8_t> faulty_;
  io::TruthRow row_;
  bool more_ = false;
  std::uint64_t unmatched_ = 0;
  std::uint64_t unknown_ = 0;
};

/// Errors of low paths beside the trace, one per unit and step, as a CSV like a trace. Units and steps that it does not
/// have were not measured; a column that is no unit is an `Error`.
class EvidenceBeside {
 public:
  EvidenceBeside(const std::string& path, const std::vector<Unit>& units);

  /// The errors of a step; NaN: not measured. Steps ascend. Valid until the next call.
  std::span<const double> at(std::int64_t step);

  /// Unit-steps that were measured so far.
  std::uint64_t measured() const { return measured_; }

 private:
  std::unique_ptr<io::TraceReader> reader_;
  std::vector<std::size_t> units_;  // of each column
  std::vector<double> errors_;
  io::TraceRow row_;
  bool more_ = false;
  std::uint64_t measured_ = 0;
};

}  // namespace gnmr::app
