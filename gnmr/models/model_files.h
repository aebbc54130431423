// SPDX-License-Identifier: Apache-2.0
// Models in files: LLaMA as transformers' LlamaForCausalLM.from_pretrained reads and writes it, others by the names of
// their parameters.
//
// Goals: an `Error` names every tensor that is missing, unexpected or of another shape, and the model is as it was; a
// model that is saved loads here and in transformers with the same logits.
// Non-goals: optimizer state, tokenizers, other architectures' names.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "gnmr/models/llama.h"
#include "gnmr/models/safetensors.h"

namespace gnmr::models {

/// `layers.3.down.weight` -> `model.layers.3.mlp.down_proj.weight`; also without `.weight` or `.bias`, for units.
std::string hugging_face_name(std::string_view name);

/// The model's weights under Hugging Face's names in forward order. They share memory with the model; a tied head has
/// none.
NamedTensors checkpoint_tensors(const LlamaImpl& model);

/// All tensors of a model by path: a .safetensors file, an index of several, a folder with either, a llama2.c file.
/// Files that a manifest beside them (gnmr/io/checksum_manifest.h) lists are verified; a folder needs none.
TensorFile read_model_tensors(const std::string& path);

/// Of a folder whose manifest was read already.
TensorFile read_model_folder(const std::string& folder, const io::FolderSums& sums);

/// A module's parameters under their own names, in their order. They share memory with it.
NamedTensors parameters_by_name(const torch::nn::Module& module);

/// Copies tensors of a file into those of the same names; `place` begins the message of an `Error`. Others in the file
/// are an error too, but for those that are `superfluous`.
void assign_tensors(const NamedTensors& tensors, const TensorFile& file, const std::string& place,
                    const std::function<bool(const std::string&)>& superfluous = {});

/// Copies weights into the model; `place` begins the message of an `Error`.
void assign_weights(LlamaImpl& model, const TensorFile& file, const std::string& place);

/// `assign_weights` of `read_model_tensors`.
void load_weights(LlamaImpl& model, const std::string& path);

/// How a model is saved.
struct SaveOptions {
  std::int64_t largest_file_bytes = std::int64_t{5} << 30;  // more are cut into several files with an index
};

/// Writes config.json, the tensors and the manifest of both into a folder, which is made where it is not there. Files
/// are replaced one by one; tensors of an earlier save that this one does not have are removed, and the manifest, which
/// is returned, comes last.
io::FolderSums save_tensors(const NamedTensors& tensors, const std::string& config, const std::string& directory,
                            const SaveOptions& options = {});

/// The same of a model.
io::FolderSums save_model(const LlamaImpl& model, const std::string& directory, const SaveOptions& options = {});

}  // namespace gnmr::models
