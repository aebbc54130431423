// SPDX-License-Identifier: Apache-2.0
// AdamW over a model's named parameters: in torch's fused kernel on the CPU, in our own on a CUDA device.
//
// Two groups: matrices decay, norms, biases and embeddings do not. A parameter without a gradient (an expert that saw
// no token) is skipped: neither its moments nor its own count of steps change.
//
// Goals: the arithmetic of torch.optim.AdamW; the clip coefficient is folded in, without a pass of its own; the state
// is there from the beginning and has names, so that a checkpoint is a list of tensors. Non-goals: sharding, other
// optimizers, deciding whether to step: an update that is skipped is a call that is not made, or a gate on the device
// that is closed. Parameters in bfloat16 have a master copy in float32, which is what is updated.
// One thread at a time; on CUDA it works on the current stream and waits for nothing.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gnmr/kernels/adamw.h"
#include "gnmr/models/safetensors.h"

namespace gnmr::train {

/// What AdamW is asked to do.
struct AdamWSettings {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
};

/// One parameter and whether it decays.
struct OptimizedParameter {
  std::string name;
  at::Tensor tensor;
  bool decays = true;
};

/// Whether a parameter decays: it has two dimensions or more and is no embedding (`embed` in its name).
bool decays(const std::string& name, const at::Tensor& parameter);

/// All parameters of a model that need gradients, in its order.
std::vector<OptimizedParameter> optimized_parameters(const torch::nn::Module& model);

/// The optimizer.
class AdamW {
 public:
  /// Makes the moments, all 0, on the devices of the parameters; an `Error` where a name is there twice, or a
  /// parameter is in bfloat16 and not on a device with our kernels.
  AdamW(std::vector<OptimizedParameter> parameters, const AdamWSettings& settings);
  ~AdamW();

  /// One update with the parameters' gradients times `clip_coefficient`, which must be above 0 and finite. Where it is
  /// not 1 torch's kernel multiplies the gradients themselves too; ours leaves them as they are.
  void step(double learning_rate, double clip_coefficient = 1);

  /// One update by a gate in device memory (gnmr/kernels/norms.h), which says whether there is one and how gradients
  /// are scaled; where `has_kernels`.
  void step_behind(const kernels::Gate* gate, double learning_rate);

  /// The tensors of all parameters as the kernels want them, with the gradients that are there now; where
  /// `has_kernels`. They share memory with the optimizer.
  const std::vector<kernels::AdamWTensor>& kernel_tensors();

  /// The settings as the kernels want them.
  kernels::AdamWSettings kernel_settings(double learning_rate) const;

  /// Whether the parameters are on a device with our kernels.
  bool has_kernels() const { return kernels_ != nullptr; }

  /// The moments and steps: `NAME.exp_avg`, `NAME.exp_avg_sq`, `NAME.step`, and of bfloat16 parameters `NAME.master`.
  /// They share memory with the optimizer.
  models::NamedTensors state() const;

  /// Takes over a state; an `Error` that names what is missing, unknown or of another shape, and then nothing changed.
  void load_state(const models::NamedTensors& state);

  const std::vector<OptimizedParameter>& parameters() const { return parameters_; }

 private:
  void update(bool decay, double learning_rate, const std::optional<at::Tensor>& gradient_scale);
  void use_kernels();

  std::vector<OptimizedParameter> parameters_;
  AdamWSettings settings_;
  std::vector<at::Tensor> means_;                     // one per parameter
  std::vector<at::Tensor> squares_;                   // one per parameter
  std::vector<at::Tensor> steps_;                     // one number per parameter, float32 beside it
  std::vector<at::Tensor> masters_;                   // of bfloat16 parameters; undefined for others
  std::unique_ptr<kernels::AdamW> kernels_;           // null: torch's
  std::vector<kernels::AdamWTensor> kernel_tensors_;  // reused
  at::Tensor gate_;                                   // for steps that the host decides
};

}  // namespace gnmr::train
