// SPDX-License-Identifier: Apache-2.0
// What training asks of a model, whatever its architecture.
//
// Goals: one interface for the training loop, checkpoints and evaluation; the model stays a torch module, so that
// units, optimizer and norms find its parameters by walking it. Non-goals: making a model: each architecture has its
// own configuration.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>

#include "gnmr/io/checksum_manifest.h"
#include "gnmr/models/safetensors.h"

namespace gnmr::models {

/// A model that predicts tokens. One thread calls it at a time.
class LanguageModel : public torch::nn::Module {
 public:
  /// Mean cross-entropy of the targets; both are [batch, positions] of int64, and a target is its position's own,
  /// already shifted.
  virtual at::Tensor loss(const at::Tensor& tokens, const at::Tensor& targets) = 0;

  /// How many parameters it has.
  virtual std::int64_t parameter_count() const = 0;

  /// Its configuration as JSON: what a checkpoint must have in common with the model that goes on from it.
  virtual std::string config_text() const = 0;

  /// Takes over weights; an `Error` names the tensor that is missing or of another shape. `place` is where they are
  /// from, for messages.
  virtual void assign(const TensorFile& weights, const std::string& place) = 0;

  /// Writes weights and configuration to a folder, as Hugging Face has them; the checksums of the files.
  virtual io::FolderSums save_to(const std::string& folder) const = 0;

  /// Why parts of it do not run as CUDA graphs although that was asked for; empty: they do, or nobody asked.
  virtual std::string graph_failure() const { return {}; }
};

}  // namespace gnmr::models
