// SPDX-License-Identifier: Apache-2.0
// Tensors in safetensors files, and in models that are cut into several of them.
//
// Goals: every damage is an `Error` that begins with the path; the bytes written depend on names, metadata and values
// alone, and are those of the reference library; neither reading nor writing copies all tensors at once.
// Non-goals: other containers, changing a file in place.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gnmr/io/checksum_manifest.h"

namespace gnmr::models {

/// Tensors with unique names, in an order.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// The texts that a file may carry.
using Metadata = std::map<std::string, std::string>;

/// What transformers asks for before it reads a file.
inline Metadata pytorch_metadata() { return {{"format", "pt"}}; }

/// What a file, or a model in several, holds; in the order of the data.
struct TensorFile {
  NamedTensors tensors;
  Metadata metadata;

  /// The tensor, or null.
  const at::Tensor* find(std::string_view name) const;

  /// The tensor; an `Error` where there is none.
  const at::Tensor& at(std::string_view name) const;
};

/// Maps a file. The tensors look at its pages (what is written to them stays in memory) and keep it mapped: it may be
/// replaced or removed while they live, but not changed in place. With `expected` the size, the header and all tensors
/// are verified first.
TensorFile read_safetensors(const std::string& path, const io::FileSums* expected = nullptr);

/// Writes tensors of any device and stride, one after the other, beside the path, and renames. On an `Error` the old
/// file is as it was and nothing is left beside it. Returns the sums of what was written.
io::FileSums write_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {});

/// The size of a tensor in a file.
std::int64_t stored_bytes(const at::Tensor& tensor);

}  // namespace gnmr::models
