// SPDX-License-Identifier: Apache-2.0
// TensorBoard event files as traces: each scalar tag that fits the pattern is a unit.
//
// Goals: one file or the directory of a run, whose files follow each other; a file that is still being written, or
// whose writer was killed, is read as far as it goes; a large tree of folders is not searched.
// Non-goals: several runs at once; constant memory.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "gnmr/io/byte_source.h"
#include "gnmr/io/trace.h"

namespace gnmr::io {

/// Reads one event file.
std::unique_ptr<TraceReader> read_tensorboard(ByteSource& source, const TraceOptions& options);

/// How far runs are looked for below a folder.
struct FolderSearch {
  std::size_t depth = 4;         // folders below folders
  std::size_t entries = 20'000;  // files and folders looked at in all
};

/// The runs below a folder.
struct EventFolders {
  std::vector<std::string> runs;  // paths from the folder, sorted
  std::size_t looked_at = 0;      // entries
  bool gave_up = false;           // there were more entries
};

/// Looks for folders with event files below `path`; not below a folder that has some, whose folders belong to the same
/// run (hyperparameters, groups of scalars).
EventFolders find_event_folders(const std::string& path, const FolderSearch& search = {});

/// The runs that can be named with `TraceOptions::run`; empty where the folder itself has event files: it is one run.
std::vector<std::string> tensorboard_runs(const std::string& path);

/// Reads the event files of a run's directory, in the order of their names, which begin with the time: of `path`
/// itself, of the only run below it, or of the run that `options` names.
std::unique_ptr<TraceReader> read_tensorboard_directory(const std::string& path, const TraceOptions& options);

}  // namespace gnmr::io
