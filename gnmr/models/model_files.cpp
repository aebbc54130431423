// SPDX-License-Identifier: Apache-2.0
#include "gnmr/models/model_files.h"

#include <ATen/ATen.h>

#include <array>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/text_error.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/models/llama2c.h"
#include "gnmr/models/sharded_files.h"

namespace gnmr::models {
namespace {

struct NamePair {
  std::string_view ours;
  std::string_view theirs;
};

// docs/models.md has the table for readers.
constexpr std::array<NamePair, 9> kBlockNames{{{"norm1", "input_layernorm"},
                                               {"q", "self_attn.q_proj"},
                                               {"k", "self_attn.k_proj"},
                                               {"v", "self_attn.v_proj"},
                                               {"o", "self_attn.o_proj"},
                                               {"norm2", "post_attention_layernorm"},
                                               {"gate", "mlp.gate_proj"},
                                               {"up", "mlp.up_proj"},
                                               {"down", "mlp.down_proj"}}};
constexpr std::array<NamePair, 3> kModelNames{
    {{"embed", "model.embed_tokens"}, {"norm", "model.norm"}, {"head", "lm_head"}}};

constexpr std::string_view kLayers = "layers.";

template <std::size_t kCount>
std::string translate(const std::array<NamePair, kCount>& names, std::string_view text, std::string_view whole) {
  const std::size_t dot = text.find('.');
  for (const NamePair& pair : names) {
    if (pair.ours == text.substr(0, dot)) {
      return std::string(pair.theirs) + std::string(dot == std::string_view::npos ? "" : text.substr(dot));
    }
  }
  throw Error("[model] no module is called " + io::in_quotes(whole));
}

// What a file may have beside the weights: a tied head's copy, and the angles that older files carry.
bool is_superfluous(const std::string& name, const LlamaConfig& config) {
  return name.ends_with(".rotary_emb.inv_freq") || (config.tied_head && name == "lm_head.weight");
}

std::string listed(std::string_view what, const std::vector<std::string>& names) {
  if (names.empty()) return {};
  std::string text = std::to_string(names.size()) + " " + std::string(what) + ":";
  for (const std::string& name : names) text += " " + name;
  return text;
}

std::string_view dtype_name(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return "float64";
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    default:
      return "float32";
  }
}

bool holds_weights(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16;
}

}  // namespace

std::string hugging_face_name(std::string_view name) {
  if (!name.starts_with(kLayers)) return translate(kModelNames, name, name);
  const std::size_t dot = name.find('.', kLayers.size());
  if (dot == std::string_view::npos) throw Error("[model] no module is called " + io::in_quotes(name));
  return "model." + std::string(name.substr(0, dot + 1)) + translate(kBlockNames, name.substr(dot + 1), name);
}

NamedTensors checkpoint_tensors(const LlamaImpl& model) {
  NamedTensors tensors;
  for (const auto& parameter : model.named_parameters()) {
    tensors.emplace_back(hugging_face_name(parameter.key()), parameter.value().detach());
  }
  return tensors;
}

TensorFile read_model_tensors(const std::string& path) {
  const std::filesystem::path given(path);
  if (given.extension() == kLlama2cExtension) return {read_llama2c_weights(path), {}};
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(given, ignored);
  const std::string folder = is_folder ? path : given.parent_path().string();
  const io::FolderSums sums = io::load_checksums(folder).value_or(io::FolderSums{});
  if (is_folder) return read_model_folder(path, sums);
  if (given.extension() == ".json") return read_sharded(path, sums);
  const auto known = sums.find(given.filename().string());
  return read_safetensors(path, known == sums.end() ? nullptr : &known->second);
}

TensorFile read_model_folder(const std::string& folder, const io::FolderSums& sums) {
  std::error_code ignored;
  const std::filesystem::path whole = std::filesystem::path(folder) / kWholeModelFile;
  if (std::filesystem::exists(whole, ignored)) {
    const auto known = sums.find(kWholeModelFile);
    return read_safetensors(whole.string(), known == sums.end() ? nullptr : &known->second);
  }
  const std::filesystem::path index = std::filesystem::path(folder) / kModelIndexFile;
  if (std::filesystem::exists(index, ignored)) return read_sharded(index.string(), sums);
  throw io::error_at(folder, "has neither " + std::string(kWholeModelFile) + " nor " + std::string(kModelIndexFile));
}

NamedTensors parameters_by_name(const torch::nn::Module& module) {
  NamedTensors tensors;
  for (const auto& parameter : module.named_parameters()) {
    tensors.emplace_back(parameter.key(), parameter.value().detach());
  }
  return tensors;
}

void assign_tensors(const NamedTensors& tensors, const TensorFile& file, const std::string& place,
                    const std::function<bool(const std::string&)>& superfluous) {
  std::map<std::string_view, const at::Tensor*> given;
  for (const auto& [name, tensor] : file.tensors) given.emplace(name, &tensor);
  std::vector<std::pair<at::Tensor, const at::Tensor*>> copies;
  std::vector<std::string> missing;
  std::vector<std::string> wrong;
  std::vector<std::string> unexpected;
  for (const auto& [name, parameter] : tensors) {
    const auto found = given.find(name);
    if (found == given.end()) {
      missing.push_back(name);
      continue;
    }
    const at::Tensor& tensor = *found->second;
    if (tensor.sizes() != parameter.sizes()) {
      wrong.push_back(name + c10::str(" ", tensor.sizes(), " instead of ", parameter.sizes()));
    } else if (!holds_weights(tensor.scalar_type())) {
      wrong.push_back(name + c10::str(" ", tensor.scalar_type(), " instead of a floating type"));
    }
    copies.emplace_back(parameter, &tensor);
    given.erase(found);
  }
  for (const auto& [name, tensor] : given) {
    if (!superfluous || !superfluous(std::string(name))) unexpected.emplace_back(name);
  }
  std::string message;
  for (const std::string& part : {listed("tensors are missing", missing), listed("tensors do not fit", wrong),
                                  listed("tensors are unexpected", unexpected)}) {
    if (!part.empty()) message += (message.empty() ? "" : "; ") + part;
  }
  if (!message.empty()) throw io::error_at(place, message);
  const at::NoGradGuard no_gradients;
  for (auto& [parameter, tensor] : copies) parameter.copy_(*tensor);
}

void assign_weights(LlamaImpl& model, const TensorFile& file, const std::string& place) {
  assign_tensors(checkpoint_tensors(model), file, place,
                 [&](const std::string& name) { return is_superfluous(name, model.config()); });
}

void load_weights(LlamaImpl& model, const std::string& path) { assign_weights(model, read_model_tensors(path), path); }

io::FolderSums save_tensors(const NamedTensors& tensors, const std::string& config, const std::string& directory,
                            const SaveOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw io::error_at(directory, "cannot create it: " + error.message());
  io::replace_file((std::filesystem::path(directory) / "config.json").string(), config);
  io::FolderSums sums = write_model_files(directory, tensors, options.largest_file_bytes);
  sums.emplace("config.json", io::sums_of(config));
  io::save_checksums(directory, sums);
  return sums;
}

io::FolderSums save_model(const LlamaImpl& model, const std::string& directory, const SaveOptions& options) {
  const NamedTensors tensors = checkpoint_tensors(model);
  return save_tensors(tensors, config_json(model.config(), dtype_name(tensors.front().second.scalar_type())), directory,
                      options);
}

}  // namespace gnmr::models
