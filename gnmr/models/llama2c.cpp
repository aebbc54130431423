// SPDX-License-Identifier: Apache-2.0
#include "gnmr/models/llama2c.h"

#include <ATen/ATen.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/io/little_endian.h"
#include "gnmr/io/text_error.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/models/model_files.h"

namespace gnmr::models {
namespace {

constexpr std::size_t kNumbers = 7;
constexpr std::size_t kHeaderBytes = kNumbers * sizeof(std::uint32_t);

struct FileLayout {
  LlamaConfig config;
  at::ScalarType type;
  bool has_tables;  // of the rotary embedding, before a head of its own
};

LlamaConfig parse_header(const std::string& bytes, const std::string& path) {
  io::LittleEndianReader reader(bytes, path + ":");
  std::array<std::int64_t, kNumbers> numbers{};
  for (std::int64_t& number : numbers) number = static_cast<std::int32_t>(reader.take<std::uint32_t>());
  const auto [hidden, intermediate, layers, heads, key_value_heads, vocabulary, positions] = numbers;
  LlamaConfig config;
  config.hidden = hidden;
  config.intermediate = intermediate;
  config.layers = layers;
  config.heads = heads;
  config.key_value_heads = key_value_heads;
  // The sign says whether there is a separate head.
  config.vocabulary = vocabulary < 0 ? -vocabulary : vocabulary;
  config.tied_head = vocabulary > 0;
  config.max_positions = positions;
  if (heads < 1 || hidden % heads != 0) {
    throw io::error_at(
        path, "not a llama2.c file: a width of " + std::to_string(hidden) + " for " + std::to_string(heads) + " heads");
  }
  config.head_dim = hidden / heads;
  try {
    validate(config);
  } catch (const Error& error) {
    throw io::error_at(path, std::string("not a llama2.c file: ") + error.what());
  }
  return config;
}

FileLayout read_layout(const std::string& path) {
  const LlamaConfig config = parse_header(io::read_file_start(path, kHeaderBytes), path);
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) io::throw_errno(path, "cannot look at it");
  const std::int64_t bytes = status.st_size - static_cast<std::int64_t>(kHeaderBytes);
  const std::int64_t weights = parameter_count(config);
  const std::int64_t tables = config.max_positions * config.head_dim;
  if (bytes == 4 * (weights + tables)) return {config, at::kFloat, true};
  if (bytes == 4 * weights) return {config, at::kFloat, false};
  if (bytes == 2 * weights) return {config, at::kBFloat16, false};
  throw io::error_at(path, "not a llama2.c file: behind its header come " + std::to_string(bytes) + " bytes, its " +
                               std::to_string(weights) + " weights take 4 or 2 each");
}

// Takes tensors from the front of the weights.
class WeightReader {
 public:
  WeightReader(const std::string& path, at::ScalarType type) : path_(path), file_(path, std::ios::binary), type_(type) {
    file_.seekg(static_cast<std::streamoff>(kHeaderBytes));
  }

  at::Tensor take(at::IntArrayRef shape) {
    const at::Tensor tensor = at::empty(shape, at::TensorOptions().dtype(type_));
    const std::int64_t bytes = stored_bytes(tensor);
    if (!file_.read(static_cast<char*>(tensor.mutable_data_ptr()), bytes)) {
      throw io::error_at(path_, "cannot read it");
    }
    return tensor;
  }

 private:
  const std::string& path_;
  std::ifstream file_;
  at::ScalarType type_;
};

// From pairs of neighbours to pairs of halves, in each head.
at::Tensor halves_of(const at::Tensor& weight, std::int64_t heads) {
  const std::int64_t width = weight.size(1);
  return weight.view({heads, -1, 2, width}).transpose(1, 2).reshape({-1, width});
}

}  // namespace

LlamaConfig read_llama2c_config(const std::string& path) { return read_layout(path).config; }

NamedTensors read_llama2c_weights(const std::string& path) {
  const auto [config, type, has_tables] = read_layout(path);
  WeightReader reader(path, type);
  NamedTensors tensors;
  const auto take_layers = [&](const std::string& name, at::IntArrayRef shape, std::int64_t heads = 0) {
    for (std::int64_t i = 0; i < config.layers; ++i) {
      const at::Tensor weight = reader.take(shape);
      tensors.emplace_back(hugging_face_name("layers." + std::to_string(i) + "." + name + ".weight"),
                           heads > 0 ? halves_of(weight, heads) : weight);
    }
  };
  const std::int64_t hidden = config.hidden;
  const std::int64_t keys = config.key_value_heads * config.head_dim;
  tensors.emplace_back(hugging_face_name("embed.weight"), reader.take({config.vocabulary, hidden}));
  take_layers("norm1", {hidden});
  take_layers("q", {hidden, hidden}, config.heads);
  take_layers("k", {keys, hidden}, config.key_value_heads);
  take_layers("v", {keys, hidden});
  take_layers("o", {hidden, hidden});
  take_layers("norm2", {hidden});
  take_layers("gate", {config.intermediate, hidden});
  take_layers("down", {hidden, config.intermediate});
  take_layers("up", {config.intermediate, hidden});
  tensors.emplace_back(hugging_face_name("norm.weight"), reader.take({hidden}));
  if (!config.tied_head) {
    if (has_tables) reader.take({config.max_positions, config.head_dim});
    tensors.emplace_back(hugging_face_name("head.weight"), reader.take({config.vocabulary, hidden}));
  }
  return tensors;
}

}  // namespace gnmr::models
