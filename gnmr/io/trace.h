// SPDX-License-Identifier: Apache-2.0
// Gradient norms of a run, a row per optimizer step, from our own CSV or from other people's logs.
//
// Goals: one interface for every format, recognised by content; a stream of any length in constant memory where the
// format allows it; messages that name file, line and column; NaN and infinity are data.
// Non-goals: deciding anything about the norms; following a file that still grows.
// A reader is used by one thread at a time. docs/logs.md describes each format.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gnmr/io/byte_source.h"

namespace gnmr::io {

/// One step; the views are valid until the reader's next `next`.
struct TraceRow {
  std::int64_t step = 0;
  std::span<const double> norms = {};          // one per unit, never negative; what is not sampled is 0
  std::span<const std::uint8_t> sampled = {};  // one per unit, 0: no sample
};

/// Gives the rows of a trace, their steps strictly increasing.
class TraceReader {
 public:
  TraceReader() = default;
  virtual ~TraceReader() = default;
  TraceReader(const TraceReader&) = delete;
  TraceReader& operator=(const TraceReader&) = delete;

  /// Names of the units, unique and not empty, in the order of the norms.
  virtual const std::vector<std::string>& units() const = 0;

  /// Reads the next row; false at the end. An `Error` says file, line and, where there are cells, column; the rows
  /// before it stand.
  virtual bool next(TraceRow& row) = 0;

  /// Bytes of the file taken so far, for progress; compressed ones where it is compressed.
  virtual std::uint64_t bytes_read() const = 0;

  /// Bytes of the file; 0 where that is not known.
  virtual std::uint64_t bytes_total() const = 0;

  /// What a user should know besides the rows, such as rows dropped because of a restart; complete after the last row.
  virtual std::vector<std::string> notes() const { return {}; }
};

/// What a trace may be written as.
enum class TraceFormat {
  automatic,
  csv,
  llmc,
  jsonl,
  trainer_state,
  megatron,
  tensorboard,
  wandb_csv,
  nvdlfw,
  torchtitan,
  hf_console,
  nemo,
  deepspeed,
  nanotron,
  olmo,
  llm_foundry,
  lightning_csv,
};

/// A format as users name it.
struct TraceFormatInfo {
  TraceFormat format;
  std::string_view name;
  std::string_view help;
};

/// Every format, `auto` first; the only list.
std::span<const TraceFormatInfo> trace_format_names();

/// The format of that name; an `Error` with all names where there is none.
TraceFormat trace_format_by_name(std::string_view name);

/// How a trace is read.
struct TraceOptions {
  TraceFormat format = TraceFormat::automatic;

  /// Accept a step that does not increase, as in the log of a resumed run: every earlier row with that step or a later
  /// one is dropped. Takes two passes, so not from standard input.
  bool allow_restart = false;

  /// Which fields are units, in logs that name their fields (all but csv, llmc and megatron): globs with `*` and `?`,
  /// separated by commas, upper and lower case alike; `!` before one excludes. Empty: a default that finds gradient
  /// norms.
  std::string field_pattern = {};

  /// The field with the step number, in the same logs except tensorboard and nvdlfw. Empty: the usual names are tried.
  std::string step_field = {};

  /// Which run, where there are several: in an export of Weights & Biases, or a folder of TensorBoard runs, where it is
  /// the path of the run's folder from there. Empty: the only one.
  std::string run = {};
};

/// Opens a trace; `-` is standard input, a directory is one of TensorBoard's. An `Error` where it cannot be read, is
/// of no known format, has no gradient norms (it then names what it does have) or has several runs and none is named.
std::unique_ptr<TraceReader> open_trace(const std::string& path, const TraceOptions& options = {});

/// The names of the runs that can be opened one by one; empty where the trace is one run. Not for standard input.
std::vector<std::string> runs_of_trace(const std::string& path, const TraceOptions& options = {});

/// The same as the first for bytes from elsewhere.
std::unique_ptr<TraceReader> open_trace(std::unique_ptr<ByteSource> source, const TraceOptions& options = {});

}  // namespace gnmr::io
