// SPDX-License-Identifier: Apache-2.0
// Checkpoints: all that a run needs to go on bit for bit, each in a folder of its own.
//
//   checkpoints/step-00000050/
//     model.safetensors, config.json   weights under Hugging Face's names: transformers loads it
//     optimizer.safetensors            moments and steps
//     low_path.safetensors             state of the low paths; absent where there is none
//     controller.gnmr                  the controller's state; absent where there is none
//     trainer.json                     step, settings, versions, sizes of the files above
//     checksums.json                   CRC-32C of every tensor and of all other bytes (gnmr/io/checksum_manifest.h)
//
// A checkpoint is written under another name, forced to the disk and renamed: a folder that is there is complete.
//
// Goals: training goes on where one cannot be written, and the old ones stay; nothing is removed that this run has not
// written; a changed bit in any file is noticed when it is loaded, and the message names the file, the tensor and the
// newest checkpoint that is intact. Non-goals: writing in the background.
// One process at a time (run::RunLock), one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/io/checksum_manifest.h"
#include "gnmr/models/safetensors.h"
#include "gnmr/run/train_settings.h"

namespace gnmr::train {

/// Names of files in a checkpoint, for messages.
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
inline constexpr const char* kLowPathFile = "low_path.safetensors";
inline constexpr const char* kControllerFile = "controller.gnmr";
inline constexpr const char* kTrainerFile = "trainer.json";

/// What a checkpoint says of itself.
struct CheckpointInfo {
  std::int64_t step = 0;  // the last one that was done
  std::string run = {};   // run::RunInfo::id of the run that has written it
  run::TrainSettings settings = {};
  std::string program = {};                       // name and version
  std::string data = {};                          // Data::fingerprint
  std::map<std::string, std::string> extra = {};  // anything else that the trainer wants back
};

/// What is saved.
struct CheckpointParts {
  CheckpointInfo info;
  models::NamedTensors optimizer;
  models::NamedTensors low_path;
  std::string controller;                                                // bytes of a state file; empty: none
  std::function<io::FolderSums(const std::string& folder)> write_model;  // puts model and config.json there
};

/// What was loaded, verified by its checksums. The tensors look at pages of the files (gnmr/models/safetensors.h).
struct LoadedCheckpoint {
  CheckpointInfo info;
  std::string torch_version;  // that wrote it
  std::string folder;
  models::TensorFile model;
  models::NamedTensors optimizer;
  models::NamedTensors low_path;
  std::string controller;
  bool verified = false;  // false: an older program wrote it, without checksums
};

/// The tensors of a model (`models::read_model_tensors`) that a run begins with. Where `path` is a checkpoint that
/// cannot be read, the `Error` names the newest intact one beside it.
models::TensorFile read_initial_model(const std::string& path);

/// The checkpoints of one run.
class CheckpointStore {
 public:
  /// `folder` need not exist; `keep` is how many stay, 0: all. `run` is the id of the run: only its own checkpoints are
  /// loaded, and only they are ever removed. None: those of any run can be loaded.
  CheckpointStore(std::string folder, std::int64_t keep, std::optional<std::string> run = {});

  /// Removes what killed runs have left unfinished; to be called when a run starts, under its lock. What cannot be
  /// removed stays.
  void remove_leftovers() const;

  /// Writes a checkpoint, then removes those of this run that are older than the ones to keep, and those of later
  /// steps, which it has superseded. A folder of that name which another run has written is renamed, not removed.
  /// Empty, or what went wrong, in words: the checkpoints that were there are there still.
  std::string save(const CheckpointParts& parts) const;

  /// Renames those of later steps that cannot be read, so that the run does not find them again.
  void set_damaged_aside(std::int64_t after) const;

  /// The newest checkpoint of this run, as `step 50 (FOLDER/step-00000050)`; empty: there is none.
  std::string newest_text() const;

  /// The steps of all complete checkpoints, ascending.
  std::vector<std::int64_t> steps() const;

  /// The step of the newest one that is not another run's; 0 where there is none.
  std::int64_t find_latest() const;

  /// Loads one and verifies every byte of it; an `Error` is `unusable`.
  LoadedCheckpoint load(std::int64_t step) const;

  /// The newest checkpoint but that of step `except` that loads: its step, and whether it has checksums. All of it is
  /// read.
  struct Intact {
    std::int64_t step = 0;
    bool verified = false;
  };
  std::optional<Intact> newest_intact(std::int64_t except) const;

  /// The error of a checkpoint that cannot be used because of `problem`, which names the file. It names the newest
  /// intact one and how to go on from that.
  Error unusable(std::int64_t step, const std::string& problem) const;

  /// Calls `restore`, which takes what was loaded of a file into use; its exceptions become `unusable`.
  void restoring(std::int64_t step, std::string_view file, const std::function<void()>& restore) const;

  /// The folder of a step: `FOLDER/step-00000050`.
  std::string folder_of(std::int64_t step) const;

 private:
  void write(const CheckpointParts& parts, const std::string& folder) const;
  enum class Owner : std::uint8_t { run, other, unknown };  // unknown: it cannot be read

  Owner owner(std::int64_t step) const;
  void set_aside(std::int64_t step) const;
  void prune(std::int64_t newest) const;
  void remove(std::int64_t step) const;

  std::string folder_;
  std::int64_t keep_;
  std::optional<std::string> run_;
};

/// `save`, again and again with growing pauses until it works or `longest` has passed; `warn` gets what goes wrong on
/// the way. `obstacle` is asked before each try: what forbids it, in words, or empty. Empty, or what went wrong at
/// last.
std::string save_patiently(const CheckpointStore& store, const CheckpointParts& parts, std::chrono::seconds longest,
                           const std::function<void(const std::string&)>& warn,
                           const std::function<std::string()>& obstacle = {});

}  // namespace gnmr::train
