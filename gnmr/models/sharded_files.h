// SPDX-License-Identifier: Apache-2.0
// A model's tensors in one safetensors file, or in several with an index that says which is where.
//
// Goals: Hugging Face's names and layout; a folder never holds two models' weights after a save.
// Non-goals: which tensors a model has (model_files.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gnmr/models/safetensors.h"

namespace gnmr::models {

/// The file of a model that is not cut.
inline constexpr std::string_view kWholeModelFile = "model.safetensors";

/// The index of one that is.
inline constexpr std::string_view kModelIndexFile = "model.safetensors.index.json";

/// Every tensor that an index names; an `Error` where a file has fewer or more. Files that `sums` lists are verified.
TensorFile read_sharded(const std::string& index_path, const io::FolderSums& sums = {});

/// Writes one file, or as many as keep each below `largest_file_bytes` (a larger tensor has a file of its own) and an
/// index; then removes what an earlier save left. Returns the sums of all files that were written.
io::FolderSums write_model_files(const std::string& directory, const NamedTensors& tensors,
                                 std::int64_t largest_file_bytes);

}  // namespace gnmr::models
