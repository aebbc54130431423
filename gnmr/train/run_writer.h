// SPDX-License-Identifier: Apache-2.0
// The folder of a run and the files in it: run.json, metrics, evidence, traces of norms and errors, checkpoints.
// Journal and signals are the supervisor's.
//
// Goals: a folder belongs to one run at a time; a folder that is removed or renamed under the run is noticed and made
// again, so that checkpoints have a place; a full disk ends no run. Non-goals: what the lines say.
// Rank 0 writes; on other ranks every call but the constructor's does nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gnmr/run/engine.h"
#include "gnmr/run/evidence.h"
#include "gnmr/run/metrics.h"
#include "gnmr/run/run_folder.h"
#include "gnmr/torch/units.h"
#include "gnmr/train/checkpoint.h"
#include "gnmr/train/trace_file.h"

namespace gnmr::train {

/// How long a disk that takes no more may hold up a run.
inline constexpr std::chrono::milliseconds kLongestWait{500};

/// The units of a run and the first step that is written.
struct WriterColumns {
  std::span<const Unit> units = {};
  std::int64_t first_step = 1;
  bool norms = false;  // which traces are wanted
  bool errors = false;
};

/// The files of one run.
class RunWriter {
 public:
  /// Locks the folder, where this process writes: an `Error` where another run has it, or where there is a run that
  /// `settings.resume` does not ask to continue. Settings and observer must outlive it.
  RunWriter(const run::TrainSettings& settings, run::TrainObserver& observer, bool writes);

  /// Whether there was a run in the folder.
  bool found_run() const { return writes_ && locks_.back().found_run(); }

  /// Continues the run in the folder; an `Error` where it was begun with other settings.
  void continue_run();

  /// Writes run.json: first of all, so that a run that is killed from here on can be resumed.
  void begin(run::RunInfo info);

  /// Opens the other files.
  void open(const WriterColumns& columns);

  const run::RunFolder& folder() const { return folder_; }
  const run::RunInfo& info() const { return info_; }
  bool writes() const { return writes_; }
  io::ExistingFile existing() const { return settings_.resume ? io::ExistingFile::resume : io::ExistingFile::refuse; }

  /// The checkpoints of this run.
  CheckpointStore checkpoints() const;

  void write(const run::TrainLine& line);
  void write(const run::EvalLine& line);
  void write_norms(std::int64_t step, std::span<const double> norms, std::span<const std::uint8_t> sampled);
  void write_errors(std::int64_t step, std::span<const double> errors);

  /// What casts did to some units; `casts` has one entry per unit, or none where that is not logged.
  void write_evidence(std::int64_t step, std::span<const UnitIndex> units, std::span<const nn::CastEvidence> casts);

  /// Notices a lost folder and makes it again. Files that are open stay what they were: their lines go with the old
  /// folder.
  void check_folder(std::int64_t step);

  /// Writes a checkpoint, again and again where the disk is full; `warn` gets what goes wrong on the way. Empty, or
  /// what is not saved and what that costs, in words.
  std::string save(const CheckpointParts& parts, bool is_last, const std::function<void(const std::string&)>& warn);

  /// Removes what a start has written that came to nothing.
  void undo_start();

  /// Ends all files; how many lines were lost.
  std::uint64_t close();

  /// What became of the folder during the run, in words; empty: it is there.
  std::string lost_folder_text() const;

 private:
  void flush();
  void make_folder_again();

  const run::TrainSettings& settings_;
  run::TrainObserver& observer_;
  bool writes_;
  run::RunFolder folder_;
  std::vector<run::RunLock> locks_;  // the last one is that of the folder as it is now
  run::RunInfo info_;
  std::vector<std::string> unit_names_;
  std::optional<run::MetricsWriter> metrics_;
  std::optional<run::EvidenceWriter> evidence_;
  std::optional<TraceFile> norms_;
  std::optional<TraceFile> errors_;
  std::string lost_folder_;  // in words; empty: it is there
  std::string lost_why_;     // why it could not be made again
};

}  // namespace gnmr::train
