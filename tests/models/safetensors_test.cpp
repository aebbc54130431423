// SPDX-License-Identifier: Apache-2.0
#include "gnmr/models/safetensors.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/models/safetensors_header.h"
#include "io/file_size_limit.h"
#include "io/temporary_folder.h"

namespace gnmr::models {
namespace {

using test::content_of;
using test::error_of;
using test::put_file;

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         (a.numel() == 0 ||
          at::equal(a.contiguous().flatten().view(at::kByte), b.contiguous().flatten().view(at::kByte)));
}

NamedTensors every_type() {
  NamedTensors tensors;
  const at::Tensor values = at::arange(-6, 6, at::TensorOptions().dtype(at::kFloat)).view({3, 4}) / 3;
  for (const auto type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kByte,
                          at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kBool}) {
    const at::Tensor source = type == at::kByte ? values.abs() * 9 : values;
    tensors.emplace_back(std::string("t.") + c10::toString(type), source.to(type));
    tensors.emplace_back(std::string("u.") + c10::toString(type), source.to(type).flatten().slice(0, 0, 5));
  }
  return tensors;
}

TEST(Safetensors, ReadsWhatItWrote) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("a.safetensors");
  NamedTensors tensors = every_type();
  tensors.emplace_back("scalar", at::scalar_tensor(3.5));
  tensors.emplace_back("empty", at::empty({2, 0, 3}));
  write_safetensors(path, tensors, {{"format", "pt"}, {"note", "x\ny"}});
  const TensorFile read = read_safetensors(path);
  EXPECT_EQ(read.metadata, (Metadata{{"format", "pt"}, {"note", "x\ny"}}));
  ASSERT_EQ(read.tensors.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) EXPECT_TRUE(same_bits(read.at(name), tensor)) << name;
  EXPECT_EQ(read.find("absent"), nullptr);
  EXPECT_NE(error_of<Error>([&] { read.at("absent"); }).find("\"absent\""), std::string::npos);
  EXPECT_EQ(folder.entries(), 1U);
}

TEST(Safetensors, BytesDependOnContentAlone) {
  const test::TemporaryFolder folder;
  NamedTensors tensors = every_type();
  write_safetensors(folder.file("a"), tensors);
  std::reverse(tensors.begin(), tensors.end());
  write_safetensors(folder.file("b"), tensors);
  EXPECT_EQ(content_of(folder.file("a")), content_of(folder.file("b")));
}

TEST(Safetensors, StridesAndGradientsAreNoMatter) {
  const test::TemporaryFolder folder;
  const at::Tensor square = at::arange(12.0).view({3, 4});
  write_safetensors(folder.file("a"), {{"t", square.t()}, {"every_second", square.flatten().slice(0, 0, 12, 2)}});
  const TensorFile read = read_safetensors(folder.file("a"));
  EXPECT_TRUE(at::equal(read.at("t"), square.t()));
  EXPECT_TRUE(at::equal(read.at("every_second"), square.flatten().slice(0, 0, 12, 2)));
  write_safetensors(folder.file("a"), {{"g", square.clone().requires_grad_()}});
  EXPECT_FALSE(read_safetensors(folder.file("a")).at("g").requires_grad());
}

TEST(Safetensors, TensorsOutliveTheirFileAndMayBeWritten) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("a");
  write_safetensors(path, {{"x", at::arange(5.0)}});
  const std::string before = content_of(path);
  const at::Tensor x = read_safetensors(path).at("x");
  x.add_(1);
  EXPECT_EQ(content_of(path), before);
  write_safetensors(path, {{"x", at::zeros({5})}});
  std::filesystem::remove(path);
  EXPECT_TRUE(at::equal(x, at::arange(5.0) + 1));
}

TEST(Safetensors, ReadsDataThatAreNotAligned) {
  const test::TemporaryFolder folder;
  SafetensorsHeader header;
  header.tensors = {{"byte", StoredType::u8, {1}, 0, 1}, {"x", StoredType::f32, {2}, 1, 9}};
  const std::vector<float> values{1.5F, -2.0F};
  put_file(folder.file("a"),
           safetensors_header_bytes(header) + "\x07" + std::string(reinterpret_cast<const char*>(values.data()), 8));
  EXPECT_TRUE(at::equal(read_safetensors(folder.file("a")).at("x"), at::tensor({1.5F, -2.0F})));
}

TEST(Safetensors, EveryCutIsAnErrorThatNamesTheFile) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("a.safetensors");
  write_safetensors(path, {{"x", at::arange(3.0)}, {"flag", at::ones({2}, at::kBool)}}, {{"format", "pt"}});
  const std::string whole = content_of(path);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    put_file(path, whole.substr(0, size));
    const std::string message = error_of<Error>([&] { read_safetensors(path); });
    EXPECT_EQ(message.rfind(path + ": ", 0), 0U) << size << ": " << message;
  }
  put_file(path, whole + "x");
  EXPECT_NE(error_of<Error>([&] { read_safetensors(path); }).find("the tensors end at"), std::string::npos);
}

TEST(Safetensors, NoChangedByteIsWorseThanAnError) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("a.safetensors");
  write_safetensors(path, {{"x", at::arange(3.0)}, {"flag", at::ones({2}, at::kBool)}}, {{"format", "pt"}});
  const std::string whole = content_of(path);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const char byte : {'\0', '9', '"', '}', '\xff'}) {
      std::string damaged = whole;
      damaged[at] = byte;
      put_file(path, damaged);
      try {
        for (const auto& [name, tensor] : read_safetensors(path).tensors) tensor.sum();
      } catch (const Error& error) {
        EXPECT_EQ(std::string(error.what()).rfind(path + ": ", 0), 0U);
      }
    }
  }
}

TEST(Safetensors, RefusesWhatCannotBeReadOrStored) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("a");
  const auto writing = [&](const NamedTensors& tensors) {
    return error_of<Error>([&] { write_safetensors(path, tensors); });
  };
  const at::Tensor one = at::ones({1});
  EXPECT_EQ(writing({{"x", one}, {"x", one}}), path + ": tensor \"x\": is there twice");
  EXPECT_EQ(writing({{"x", at::Tensor()}}), path + ": tensor \"x\": is not defined");
  EXPECT_EQ(writing({{"__metadata__", one}}), path + ": tensor \"__metadata__\": no tensor can have this name");
  EXPECT_NE(writing({{"x", at::ones({1}, at::kComplexFloat)}}).find("cannot store"), std::string::npos);
  EXPECT_EQ(folder.entries(), 0U);
  EXPECT_NE(error_of<Error>([&] { read_safetensors(path); }).find(path + ": cannot open it"), std::string::npos);
  EXPECT_NE(error_of<Error>([&] { read_safetensors(folder.file("")); }).find("not a regular file"), std::string::npos);
  EXPECT_NE(error_of<Error>([&] { write_safetensors(folder.file("no/where"), {}); }).find("no/where: "),
            std::string::npos);
}

TEST(Safetensors, ABooleanIsZeroOrOne) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("a");
  SafetensorsHeader header;
  header.tensors = {{"flag", StoredType::boolean, {2}, 0, 2}};
  put_file(path, safetensors_header_bytes(header) + "\x01\x02");
  EXPECT_EQ(error_of<Error>([&] { read_safetensors(path); }), path + ": tensor \"flag\": a BOOL is neither 0 nor 1");
}

TEST(Safetensors, AFullDiskLeavesTheOldFileAndNothingBeside) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("a");
  write_safetensors(path, {{"x", at::arange(5.0)}});
  const std::string before = content_of(path);
  for (const rlim_t limit : {rlim_t{0}, rlim_t{100}, rlim_t{100000}}) {
    const test::FileSizeLimit full(limit);
    const NamedTensors large{{"x", at::ones({50000})}, {"y", at::ones({50000})}};
    EXPECT_NE(error_of<Error>([&] { write_safetensors(path, large); }).find(path + ": cannot write it"),
              std::string::npos);
    EXPECT_EQ(content_of(path), before);
    EXPECT_EQ(folder.entries(), 1U);
  }
}

}  // namespace
}  // namespace gnmr::models
