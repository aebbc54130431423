// SPDX-License-Identifier: Apache-2.0
// Holds a layer's paths in the autograd graph for as long as a backward may come. Goals: that. Non-goals: their use.
#pragma once

#include <torch/custom_class.h>

#include <memory>
#include <utility>

#include "gnmr/low/linear_paths.h"

namespace gnmr::nn {

/// The paths of one layer.
struct PathsHolder : torch::CustomClassHolder {
  explicit PathsHolder(std::shared_ptr<low::LinearPaths> held) : paths(std::move(held)) {}
  std::shared_ptr<low::LinearPaths> paths;
};

}  // namespace gnmr::nn
