// SPDX-License-Identifier: Apache-2.0
#include "gnmr/models/llama2c.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/models/llama.h"
#include "gnmr/models/model_files.h"
#include "io/temporary_folder.h"

namespace gnmr::models {
namespace {

using test::error_of;
using test::put_file;

template <typename Number>
void append_bytes(std::string& bytes, Number number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

// hidden 8, intermediate 6, 2 layers, 2 heads, 1 key-value head, 5 pieces, 4 positions.
std::string header(std::int32_t vocabulary = 5) {
  std::string bytes;
  for (const std::int32_t number : {8, 6, 2, 2, 1, vocabulary, 4}) append_bytes(bytes, number);
  return bytes;
}

std::string floats(std::int64_t count) {
  std::string bytes;
  for (std::int64_t i = 0; i < count; ++i) append_bytes(bytes, static_cast<float>(i));
  return bytes;
}

constexpr std::int64_t kTied = 5 * 8 + 2 * (8 + 64 + 32 + 32 + 64 + 8 + 3 * 48) + 8;
constexpr std::int64_t kTables = 4 * 4;

TEST(Llama2c, TheSizeOfTheFileTellsTheLayout) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("m.bin");
  put_file(path, header() + floats(kTied));
  const LlamaConfig config = load_config(path);
  EXPECT_EQ(config.hidden, 8);
  EXPECT_EQ(config.intermediate, 6);
  EXPECT_EQ(config.head_dim, 4);
  EXPECT_EQ(config.vocabulary, 5);
  EXPECT_EQ(config.max_positions, 4);
  EXPECT_TRUE(config.tied_head);
  EXPECT_EQ(parameter_count(config), kTied);
  put_file(path, header() + floats(kTied + kTables));
  EXPECT_EQ(load_config(path), config);
  put_file(path, header() + std::string(2 * kTied, '\0'));
  EXPECT_EQ(read_llama2c_weights(path)[0].second.scalar_type(), at::kBFloat16);
  put_file(path, header(-5) + floats(kTied + kTables + 40));
  EXPECT_FALSE(load_config(path).tied_head);
  const NamedTensors own_head = read_llama2c_weights(path);
  EXPECT_EQ(own_head.back().first, "lm_head.weight");
  EXPECT_EQ(own_head.back().second[0][0].item<float>(), static_cast<float>(kTied + kTables));
}

TEST(Llama2c, WeightsComeInTheirOrderAndPairsBecomeHalves) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("m.bin");
  put_file(path, header() + floats(kTied));
  Llama model(load_config(path));
  load_weights(*model, path);
  const auto first = [](const at::Tensor& weight) { return weight.flatten()[0].item<float>(); };
  float at = 0;
  const auto expect_next = [&](const at::Tensor& of_layer_0, const at::Tensor& of_layer_1) {
    EXPECT_EQ(first(of_layer_0), at);
    EXPECT_EQ(first(of_layer_1), at + static_cast<float>(of_layer_0.numel()));
    at += 2 * static_cast<float>(of_layer_0.numel());
  };
  EXPECT_EQ(first(model->embed->weight), 0.0F);
  at = 40;
  const auto& a = *model->layers[0];
  const auto& b = *model->layers[1];
  expect_next(a.norm1->weight, b.norm1->weight);
  // Rows 0 to 3 of a head are two pairs: (0, 1) and (2, 3). The halves are (0, 2) and (1, 3).
  const at::Tensor rows = a.q->weight.select(1, 0);
  for (const auto& [row, from] : std::vector<std::pair<int, float>>{{0, 0}, {1, 2}, {2, 1}, {3, 3}, {4, 4}, {5, 6}}) {
    EXPECT_EQ(rows[row].item<float>(), at + from * 8) << row;
  }
  expect_next(a.q->weight, b.q->weight);
  expect_next(a.k->weight, b.k->weight);
  expect_next(a.v->weight, b.v->weight);
  expect_next(a.o->weight, b.o->weight);
  expect_next(a.norm2->weight, b.norm2->weight);
  expect_next(a.gate->weight, b.gate->weight);
  expect_next(a.down->weight, b.down->weight);
  expect_next(a.up->weight, b.up->weight);
  EXPECT_EQ(first(model->norm->weight), at);
}

TEST(Llama2c, RefusesOtherFiles) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("m.bin");
  const auto refusal = [&](const std::string& content) {
    put_file(path, content);
    const std::string message = error_of<Error>([&] { load_config(path); });
    EXPECT_EQ(message.rfind(path + ":", 0), 0U) << message;
    return message;
  };
  EXPECT_NE(refusal("").find("expected 4 bytes"), std::string::npos);
  EXPECT_NE(refusal(header().substr(0, 27)).find("byte 24"), std::string::npos);
  EXPECT_NE(refusal(header() + floats(kTied - 1)).find("its " + std::to_string(kTied) + " weights take 4 or 2 each"),
            std::string::npos);
  EXPECT_NE(refusal(header() + floats(kTied) + "x").find("not a llama2.c file"), std::string::npos);
  EXPECT_NE(refusal(header(0) + floats(kTied)).find("vocabulary"), std::string::npos);
  EXPECT_NE(refusal(std::string(28, '\0')).find("0 heads"), std::string::npos);
  EXPECT_NE(refusal(std::string(64, '\xff')).find("heads"), std::string::npos);
}

TEST(Llama2c, ReadsARealModel) {
  const char* data = std::getenv("GNMR_DATA_DIR");
  const std::string path = std::string(data != nullptr ? data : "") + "/models/stories260K/stories260K.bin";
  if (data == nullptr || !std::filesystem::exists(path)) {
    GTEST_SKIP() << "GNMR_DATA_DIR is not a folder with models/stories260K/stories260K.bin";
  }
  Llama model(load_config(path));
  load_weights(*model, path);
  // "Once upon a time", and the comma that follows, as its tokenizer of 512 pieces has them.
  const at::Tensor text = at::tensor({1, 403, 407, 261, 378}, at::TensorOptions().dtype(at::kLong)).view({1, -1});
  const at::NoGradGuard no_gradients;
  const at::Tensor next = model->forward(text)[0][-1].argmax();
  EXPECT_EQ(next.item<std::int64_t>(), 432);
}

}  // namespace
}  // namespace gnmr::models
