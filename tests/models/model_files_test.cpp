// SPDX-License-Identifier: Apache-2.0
#include "gnmr/models/model_files.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gnmr/core/error.h"
#include "io/temporary_folder.h"

namespace gnmr::models {
namespace {

using test::content_of;
using test::error_of;
using test::put_file;

LlamaConfig small_saved(bool tied = false) {
  LlamaConfig config;
  config.vocabulary = 13;
  config.hidden = 8;
  config.intermediate = 12;
  config.layers = 2;
  config.heads = 2;
  config.key_value_heads = 1;
  config.head_dim = 4;
  config.tied_head = tied;
  config.mlp_bias = true;
  return config;
}

Llama made(std::uint64_t seed, const LlamaConfig& config = small_saved()) {
  Llama model(config);
  model->initialise(seed);
  return model;
}

bool same_weights(const LlamaImpl& a, const LlamaImpl& b) {
  const NamedTensors of_a = checkpoint_tensors(a);
  const NamedTensors of_b = checkpoint_tensors(b);
  return std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(),
                    [](const auto& x, const auto& y) { return x.first == y.first && at::equal(x.second, y.second); });
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(ModelFiles, NamesAreThoseOfHuggingFace) {
  EXPECT_EQ(hugging_face_name("embed.weight"), "model.embed_tokens.weight");
  EXPECT_EQ(hugging_face_name("layers.12.norm1.weight"), "model.layers.12.input_layernorm.weight");
  EXPECT_EQ(hugging_face_name("layers.0.q.bias"), "model.layers.0.self_attn.q_proj.bias");
  EXPECT_EQ(hugging_face_name("layers.3.down"), "model.layers.3.mlp.down_proj");
  EXPECT_EQ(hugging_face_name("norm.weight"), "model.norm.weight");
  EXPECT_EQ(hugging_face_name("head"), "lm_head");
  for (const char* name : {"", "layers", "layers.3", "layers.3.", "layers.3.x.weight", "heads"}) {
    EXPECT_THROW(hugging_face_name(name), Error) << name;
  }
}

TEST(ModelFiles, AModelThatIsSavedIsLoaded) {
  for (const bool tied : {false, true}) {
    const test::TemporaryFolder folder;
    const std::string path = folder.file("new/model");
    const Llama model = made(1, small_saved(tied));
    save_model(*model, path);
    EXPECT_EQ(names_in(path), (std::vector<std::string>{"checksums.json", "config.json", "model.safetensors"}));
    EXPECT_EQ(load_config(path), model->config());
    for (const std::string& source : {path, path + "/model.safetensors"}) {
      Llama loaded(load_config(path));
      load_weights(*loaded, source);
      EXPECT_TRUE(same_weights(*model, *loaded));
    }
  }
}

TEST(ModelFiles, LargeModelsAreCutAndAnEarlierSaveIsGone) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("model");
  const Llama first = made(1);
  const Llama second = made(2);
  save_model(*first, path);
  save_model(*second, path, {.largest_file_bytes = 1500});
  const auto names = names_in(path);
  ASSERT_GT(names.size(), 4U);
  EXPECT_EQ(names[2].rfind("model-00001-of-0000", 0), 0U);
  EXPECT_EQ(names.back(), "model.safetensors.index.json");
  for (const std::string& name : names) EXPECT_LT(std::filesystem::file_size(path + "/" + name), 4000U) << name;
  for (const std::string& source : {path, path + "/model.safetensors.index.json"}) {
    Llama loaded(load_config(path));
    load_weights(*loaded, source);
    EXPECT_TRUE(same_weights(*second, *loaded));
  }
  put_file(path + "/notes.safetensors", "mine");
  save_model(*first, path);
  EXPECT_EQ(names_in(path),
            (std::vector<std::string>{"checksums.json", "config.json", "model.safetensors", "notes.safetensors"}));
}

// Flips one bit of a file and puts it back when it is gone.
class FlippedBit {
 public:
  FlippedBit(const std::string& path, std::size_t bit) : path_(path), good_(test::content_of(path)) {
    std::string bad = good_;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    put_file(path_, bad);
  }
  FlippedBit(const FlippedBit&) = delete;
  FlippedBit& operator=(const FlippedBit&) = delete;
  ~FlippedBit() { put_file(path_, good_); }

 private:
  std::string path_;
  std::string good_;
};

TEST(ModelFiles, AFlippedBitIsNamedAndAFolderNeedsNoManifest) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("model");
  const Llama model = made(1);
  for (const std::int64_t largest : {std::int64_t{1} << 30, std::int64_t{1500}}) {
    save_model(*model, path, {.largest_file_bytes = largest});
    for (const std::string& name : names_in(path)) {
      if (!name.ends_with(".safetensors")) continue;
      const std::string file = path + "/" + name;
      const std::size_t length = test::content_of(file).size();
      std::size_t end = length;
      const auto tensors = read_safetensors(file).tensors;  // in the order of their data
      for (auto one = tensors.rbegin(); one != tensors.rend(); ++one) {
        end -= static_cast<std::size_t>(stored_bytes(one->second));
        const FlippedBit flipped(file, 8 * end + one->first.size() % 32);
        const std::string message = error_of<Error>([&] { read_model_tensors(path); });
        EXPECT_TRUE(message.starts_with(file + ": tensor \"" + one->first + "\": damaged")) << message;
        EXPECT_EQ(error_of<Error>([&] { read_model_tensors(file); }), message);
      }
      const FlippedBit flipped(file, 8 * (end - 1));  // a space of the header: nobody else would notice
      EXPECT_TRUE(error_of<Error>([&] { read_model_tensors(path); }).starts_with(file + ": header: damaged"));
    }
    const FlippedBit flipped(path + "/config.json", 8 * 20 + 1);
    EXPECT_TRUE(error_of<Error>([&] { load_config(path); }).starts_with(path + "/config.json: damaged"));
  }
  {
    const FlippedBit flipped(path + "/model.safetensors.index.json", 8 * 30 + 1);
    EXPECT_TRUE(error_of<Error>([&] {
                  read_model_tensors(path);
                }).starts_with(path + "/model.safetensors.index.json: damaged"));
  }
  const std::string manifest = path + "/checksums.json";
  {
    const FlippedBit flipped(manifest, 8 * 50);
    for (const std::string& message :
         {error_of<Error>([&] { read_model_tensors(path); }), error_of<Error>([&] { load_config(path); })}) {
      EXPECT_TRUE(message.starts_with(manifest + ": damaged")) << message;
      EXPECT_TRUE(message.find("To load them unverified, remove it") != std::string::npos) << message;
    }
  }
  std::filesystem::remove(manifest);
  Llama loaded(load_config(path));
  load_weights(*loaded, path);
  EXPECT_TRUE(same_weights(*model, *loaded));
}

TEST(ModelFiles, EveryTensorThatDoesNotFitIsNamedAndNothingChanges) {
  const Llama source = made(1);
  TensorFile file{checkpoint_tensors(*source), {}};
  std::erase_if(file.tensors, [](const auto& one) { return one.first.find("up_proj") != std::string::npos; });
  file.tensors.emplace_back("model.extra", at::ones({1}));
  file.tensors.emplace_back("model.more", at::ones({1}));
  file.tensors[0].second = at::ones({3, 8});
  file.tensors[1].second = at::ones({8}, at::kInt);
  Llama model = made(2);
  const Llama before = made(2);
  const std::string message = error_of<Error>([&] { assign_weights(*model, file, "here"); });
  EXPECT_EQ(message,
            "here: 4 tensors are missing: model.layers.0.mlp.up_proj.weight model.layers.0.mlp.up_proj.bias "
            "model.layers.1.mlp.up_proj.weight model.layers.1.mlp.up_proj.bias; "
            "2 tensors do not fit: model.embed_tokens.weight [3, 8] instead of [13, 8] "
            "model.layers.0.input_layernorm.weight Int instead of a floating type; "
            "2 tensors are unexpected: model.extra model.more");
  EXPECT_TRUE(same_weights(*model, *before));
}

TEST(ModelFiles, WhatOlderFilesCarryIsIgnored) {
  const Llama source = made(1, small_saved(true));
  TensorFile file{checkpoint_tensors(*source), {}};
  file.tensors.emplace_back("model.layers.0.self_attn.rotary_emb.inv_freq", at::ones({2}));
  file.tensors.emplace_back("lm_head.weight", source->embed->weight.detach());
  Llama model = made(2, small_saved(true));
  assign_weights(*model, file, "here");
  EXPECT_TRUE(same_weights(*model, *source));
}

TEST(ModelFiles, OtherTypesAreConverted) {
  const test::TemporaryFolder folder;
  Llama source = made(1);
  source->to(at::kBFloat16);
  save_model(*source, folder.file("m"));
  EXPECT_NE(content_of(folder.file("m/config.json")).find("\"torch_dtype\": \"bfloat16\""), std::string::npos);
  Llama model = made(2);
  load_weights(*model, folder.file("m"));
  EXPECT_EQ(model->embed->weight.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(model->embed->weight, source->embed->weight.to(at::kFloat)));
}

class Index : public testing::Test {
 protected:
  void SetUp() override {
    write_safetensors(folder_.file("one.safetensors"), {{"a", at::ones({1})}, {"b", at::ones({2})}});
    write_safetensors(folder_.file("two.safetensors"), {{"c", at::ones({3})}});
  }

  // What is read, or the message.
  std::string read(const nlohmann::json& weight_map) {
    put_file(path_, nlohmann::json{{"weight_map", weight_map}}.dump());
    try {
      std::string names;
      for (const auto& [name, tensor] : read_model_tensors(path_).tensors) names += name;
      return names;
    } catch (const Error& error) {
      return error.what();
    }
  }

  test::TemporaryFolder folder_;
  std::string path_ = folder_.file("model.safetensors.index.json");
};

TEST_F(Index, SaysWhereEveryTensorIs) {
  EXPECT_EQ(read({{"a", "one.safetensors"}, {"b", "one.safetensors"}, {"c", "two.safetensors"}}), "abc");
}

TEST_F(Index, AndFilesHaveWhatItSays) {
  EXPECT_NE(read({{"a", "one.safetensors"}}).find("one.safetensors: tensor \"b\" is not in the index"),
            std::string::npos);
  EXPECT_NE(read({{"c", "two.safetensors"}, {"d", "two.safetensors"}}).find("tensor \"d\" here; it is missing"),
            std::string::npos);
  EXPECT_NE(read({{"c", "three.safetensors"}}).find("three.safetensors: cannot open it"), std::string::npos);
}

TEST_F(Index, NamesFilesBesideItOnly) {
  for (const auto& file : nlohmann::json{"../one.safetensors", "/etc/passwd", "", ".", "..", 1, nullptr}) {
    EXPECT_NE(read({{"a", file}}).find("is not the name of a file"), std::string::npos) << file;
  }
}

TEST_F(Index, IsJson) {
  for (const char* text : {"", "{", "[]", "{}", R"({"weight_map":1})"}) {
    put_file(path_, text);
    EXPECT_EQ(error_of<Error>([&] { read_model_tensors(path_); }).rfind(path_ + ": ", 0), 0U) << text;
  }
  std::filesystem::remove(path_);
  EXPECT_NE(error_of<Error>([&] { read_model_tensors(folder_.file("")); }).find("has neither model.safetensors nor"),
            std::string::npos);
}

}  // namespace
}  // namespace gnmr::models
