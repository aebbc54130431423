// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/adamw_reference.h"

#include <cmath>
#include <string>

#include "gnmr/core/error.h"

namespace gnmr::kernels {

void check_tensors(std::span<const AdamWTensor> tensors) {
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    const AdamWTensor& tensor = tensors[index];
    if (tensor.count == 0) continue;
    const auto reject = [index](const std::string& what) {
      throw Error("[adamw, tensor " + std::to_string(index) + "] expected " + what);
    };
    const auto check = [&](const void* data, std::size_t alignment, const char* what) {
      if (data == nullptr) reject(std::string("an address of its ") + what + ", got none");
      if (reinterpret_cast<std::uintptr_t>(data) % alignment != 0) {
        reject(std::string("an address of its ") + what + " that is a multiple of " + std::to_string(alignment));
      }
    };
    if (tensor.parameter_type == ElementType::float16 || tensor.gradient_type == ElementType::float16) {
      reject("float32 or bfloat16, got float16");
    }
    check(tensor.parameter, bytes_of(tensor.parameter_type), "parameter");
    if (tensor.gradient != nullptr) check(tensor.gradient, bytes_of(tensor.gradient_type), "gradient");
    check(tensor.mean, sizeof(float), "mean");
    check(tensor.square, sizeof(float), "square");
    check(tensor.steps, sizeof(float), "steps");
    if (tensor.master == nullptr) continue;
    if (tensor.parameter_type != ElementType::bfloat16) reject("no master copy of a parameter that is not bfloat16");
    check(tensor.master, sizeof(float), "master");
  }
}

void reference_adamw(std::span<const AdamWTensor> tensors, const AdamWSettings& settings, const Gate& gate) {
  check_tensors(tensors);
  if (gate.apply == 0) return;
  const double learning_rate =
      settings.device_learning_rate != nullptr ? *settings.device_learning_rate : settings.learning_rate;
  for (const AdamWTensor& tensor : tensors) {
    if (tensor.gradient == nullptr || tensor.count == 0) continue;
    *tensor.steps += 1;
    const double steps = static_cast<double>(*tensor.steps);
    const double step_size = learning_rate / (1 - std::pow(settings.beta1, steps));
    const double root_correction = std::sqrt(1 - std::pow(settings.beta2, steps));
    for (std::size_t i = 0; i < tensor.count; ++i) {
      const double gradient =
          load_element(tensor.gradient, i, tensor.gradient_type) * static_cast<double>(gate.coefficient);
      double parameter = tensor.master != nullptr ? static_cast<double>(tensor.master[i])
                                                  : load_element(tensor.parameter, i, tensor.parameter_type);
      parameter -= learning_rate * tensor.weight_decay * parameter;
      const double mean = settings.beta1 * static_cast<double>(tensor.mean[i]) + (1 - settings.beta1) * gradient;
      const double square =
          settings.beta2 * static_cast<double>(tensor.square[i]) + (1 - settings.beta2) * gradient * gradient;
      parameter -= step_size * mean / (std::sqrt(square) / root_correction + settings.epsilon);
      tensor.mean[i] = static_cast<float>(mean);
      tensor.square[i] = static_cast<float>(square);
      if (tensor.master != nullptr) tensor.master[i] = static_cast<float>(parameter);
      store_element(tensor.parameter, i, tensor.parameter_type, parameter);
    }
  }
}

}  // namespace gnmr::kernels
