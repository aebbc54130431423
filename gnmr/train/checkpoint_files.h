// SPDX-License-Identifier: Apache-2.0
// What a checkpoint is made of on the disk: folders that appear whole, and trainer.json.
//
// Goals: every step that a power cut could undo is forced to the disk first. Non-goals: tensors. For checkpoint.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "gnmr/train/checkpoint.h"

namespace gnmr::train {

/// Names of files and their sizes.
using FileSizes = std::map<std::string, std::uint64_t>;

/// The sizes of all files in a folder.
FileSizes sizes_in(const std::string& folder);

/// Forces all files of a folder, and the folder, to the disk; an `Error` where that fails.
void force_to_disk(const std::string& folder);

/// Forces only the folder's own entries.
void force_entries_to_disk(const std::string& folder);

/// Gives `from` the name `to`; where `to` is there both change places at once, or, where the file system cannot do
/// that, `to` becomes `from` first. An `Error` with errno's text.
void exchange_folders(const std::string& from, const std::string& to);

/// What trainer.json holds.
struct TrainerJson {
  CheckpointInfo info;
  std::string torch_version;
  FileSizes files;
  std::string checksums;  // the name of the manifest beside it; empty: an older program wrote it, and there is none
};

/// As text.
std::string write_trainer_json(const TrainerJson& content);

/// From text; an `Error` says what is wrong with it.
TrainerJson parse_trainer_json(std::string_view text);

/// Removes a folder and all that is in it; whether it is gone (also where it never was). It uses no std::filesystem:
/// builds of torch carry parts of it under the same names, and removing a tree then mixes two versions.
bool remove_folder(const std::string& folder);

}  // namespace gnmr::train
