// SPDX-License-Identifier: Apache-2.0
// The folder of a run: where each file is, who may write in it, and run.json, which says what was run.
//
// Goals: a run never overwrites or deletes what it did not write; two processes never write one run; run.json is there
// whole or not at all; a folder that is removed under a run is noticed.
// Non-goals: what the other files hold, checkpoints (gnmr/train/checkpoint.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gnmr/io/file_descriptor.h"
#include "gnmr/run/train_settings.h"

namespace gnmr::run {

/// Where the parts of a run are; nothing is looked up.
class RunFolder {
 public:
  explicit RunFolder(std::string path);

  const std::string& path() const { return path_; }
  std::string run_json() const { return path_ + "/run.json"; }
  std::string metrics() const { return path_ + "/metrics.jsonl"; }
  std::string journal() const { return path_ + "/journal.jsonl"; }
  std::string signals() const { return path_ + "/signals.bin"; }
  std::string errors() const { return path_ + "/errors.bin"; }
  std::string evidence() const { return path_ + "/evidence.jsonl"; }
  std::string faults() const { return path_ + "/faults.csv"; }
  std::string fault_list() const { return path_ + "/faults.jsonl"; }
  std::string harm() const { return path_ + "/harm.jsonl"; }

  /// `norms.csv` or `errors.csv`; a trace has one header, so a run that goes on with a step begins another file.
  std::string trace(const std::string& name, std::int64_t first_step) const {
    return path_ + "/" + name + (first_step > 1 ? "-from-" + std::to_string(first_step) : "") + ".csv";
  }

  std::string control() const { return path_ + "/control"; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string lock() const { return path_ + "/.lock"; }

  /// Whether the folder has a run.
  bool holds_run() const;

  /// The first file that a new run would write and that is there already, with content; empty: none.
  std::string find_foreign_file() const;

  /// Removes what a start has written, where it came to nothing. Only for a new run whose lock is held: everything that
  /// is removed is then its own.
  void remove_start() const;

 private:
  std::string path_;
};

/// Holds a run's folder for writing; the lock goes with the object, and with the process however it ends.
class RunLock {
 public:
  /// Makes the folder where it is missing and locks it. An `Error` where another process has it, where it holds a run
  /// and `resume` is false, or where it holds no run but files that a run would write. With `resume` a folder without
  /// a run is accepted; `found_run` returns it. An `OutputError` where the folder cannot be written.
  RunLock(const RunFolder& folder, bool resume);

  /// Whether there was a run when the folder was locked.
  bool found_run() const { return found_run_; }

  /// Whether the folder is no longer where it was: removed, renamed, or another one is in its place.
  bool is_gone() const;

 private:
  std::string path_;
  io::FileDescriptor file_;
  bool found_run_ = false;
};

/// What was run.
struct RunInfo {
  std::string id = {};  // names the run among all others; its checkpoints have it too; empty: of an older version
  std::string label;
  std::string program;                     // name and version
  std::string model;                       // name
  std::int64_t parameters = 0;             // of the model; 0: not known
  std::string recipe;                      // name
  std::string controller;                  // none, gnmr, watch, or what stands in its place
  std::string preset;                      // of the controller's options; empty: none was named
  std::int64_t batch_tokens = 0;           // tokens a step
  std::int64_t units = 0;                  // that are watched
  std::int64_t budget = 0;                 // units in recovery at one time
  std::string data;                        // a checksum of what it was trained on
  std::string faults;                      // in words; empty: none were injected
  std::string started;                     // as io::utc_text writes it
  std::string commit = {};                 // of the build, as `build_commit` has it; empty: not known
  std::string torch = {};                  // its version; likewise
  std::int64_t threads = 0;                // of the process; 0: not known
  std::optional<std::int64_t> steps = {};  // what a file says beside its settings, which are what is written there
  std::optional<std::int64_t> seed = {};
  TrainSettings settings = {};

  bool operator==(const RunInfo&) const = default;
};

/// A new, random `RunInfo::id`.
std::string new_run_id();

/// A larger run.json is refused.
inline constexpr std::size_t kLargestRunJson = std::size_t{16} << 20U;

/// What run.json holds: `granularity`, `steps` and `seed` are taken from the settings.
std::string write_run_info(const RunInfo& info);

/// What such a text says of a run that is continued or measured: `settings` must be there and each of them known; other
/// keys that are not known are skipped. `file` is for messages.
RunInfo parse_run_info(std::string_view text, const std::string& file);

/// The same of a run of any program or version: only `version` must be there, and settings keep their defaults.
RunInfo parse_any_run_info(std::string_view text, const std::string& file);

/// Puts run.json in its place: all of it or nothing.
void save_run_info(const RunFolder& folder, const RunInfo& info);

/// Reads run.json; the `Error` begins with its path.
RunInfo load_run_info(const RunFolder& folder);

}  // namespace gnmr::run
