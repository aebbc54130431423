// SPDX-License-Identifier: Apache-2.0
#include "gnmr/models/safetensors_header.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <string>

#include "gnmr/core/error.h"
#include "io/temporary_folder.h"

namespace gnmr::models {
namespace {

using test::error_of;

// The message without its place, which must begin it.
std::string refusal(const std::string& text, std::uint64_t data_bytes = 8) {
  const std::string message = error_of<Error>([&] { parse_safetensors_header(text, data_bytes, "file"); });
  EXPECT_EQ(message.rfind("file: ", 0), 0U) << message;
  return message.substr(std::min<std::size_t>(6, message.size()));
}

std::string tensor(const std::string& name, const std::string& type, const std::string& shape, const std::string& at) {
  return "\"" + name + R"(":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":)" + at + "}";
}

TEST(SafetensorsHeader, ReadsWhatItWrote) {
  SafetensorsHeader header;
  header.metadata = {{"format", "pt"}, {"a \"b\"", "\n"}};
  header.tensors = {{"x", StoredType::f64, {2}, 0, 16},
                    {"empty", StoredType::i64, {3, 0}, 16, 16},
                    {"größe", StoredType::bf16, {1, 3}, 16, 22},
                    {"scalar", StoredType::u8, {}, 22, 23}};
  const std::string bytes = safetensors_header_bytes(header);
  EXPECT_EQ(bytes.size() % 8, 0U);
  EXPECT_EQ(header_length(bytes, bytes.size() + 23, "file"), bytes.size() - 8);
  EXPECT_EQ(parse_safetensors_header(bytes.substr(8), 23, "file"), header);
}

TEST(SafetensorsHeader, TakesAnyOrderAndSpaces) {
  const auto header = parse_safetensors_header(
      "{" + tensor("b", "F32", "[1]", "[4,8]") + " , " + tensor("a", "F32", "[ 1 ]", "[0,4]") + "}   ", 8, "file");
  ASSERT_EQ(header.tensors.size(), 2U);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[1].name, "b");
}

TEST(SafetensorsHeader, RefusesLengths) {
  const auto length = [](const std::string& first, std::uint64_t size) {
    return error_of<Error>([&] { header_length(first, size, "file"); });
  };
  EXPECT_EQ(length("", 0), "file: not a safetensors file: it has 0 bytes");
  EXPECT_EQ(length("\x01\0\0\0\0\0\0", 7), "file: not a safetensors file: it has 7 bytes");
  EXPECT_EQ(length(std::string("\x09\0\0\0\0\0\0\0", 8), 16),
            "file: it is cut off: its header has 9 bytes, after its length come 8");
  EXPECT_NE(length(std::string(8, '\xff'), 100).find("would be 18446744073709551615 bytes"), std::string::npos);
  EXPECT_EQ(header_length(std::string("\x08\0\0\0\0\0\0\0", 8), 16, "file"), 8U);
}

TEST(SafetensorsHeader, RefusesWhatIsNotAHeader) {
  EXPECT_EQ(refusal(""), "the header does not begin with {");
  EXPECT_EQ(refusal(" {}"), "the header does not begin with {");
  EXPECT_EQ(refusal("{\"a\""), "the header is not JSON: column 5: unexpected end of input; expected ':'");
  EXPECT_EQ(refusal("{}}"), "the header is not JSON: column 3: unexpected '}'; expected end of input");
  EXPECT_EQ(refusal(R"({"a":1})"), "tensor \"a\": expected an object");
  EXPECT_EQ(refusal(R"({"__metadata__":[]})"), "`__metadata__`: expected an object");
  EXPECT_EQ(refusal(R"({"__metadata__":{"x":1}})"), "`__metadata__`: \"x\" is not a string");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[2]}})"), "tensor \"a\": `data_offsets` is missing");
  EXPECT_EQ(refusal(R"({"a":{"dtype":1,"shape":[2],"data_offsets":[0,8]}})"),
            "tensor \"a\": `dtype`: expected a string");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})"),
            "tensor \"a\": `shape`: expected an array");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"extra":0}})"),
            "tensor \"a\": unknown key \"extra\"");
}

TEST(SafetensorsHeader, RefusesTypesAndShapes) {
  EXPECT_EQ(refusal("{" + tensor("a", "F33", "[2]", "[0,8]") + "}"), "tensor \"a\": unknown dtype \"F33\"");
  EXPECT_EQ(refusal("{" + tensor("a", "F32", "[3]", "[0,8]") + "}"),
            "tensor \"a\": its type and shape are 12 bytes, its data 8");
  EXPECT_EQ(refusal("{" + tensor("a", "F32", "[-2]", "[0,8]") + "}"),
            "tensor \"a\": `shape`: expected whole numbers, 0 or more");
  EXPECT_EQ(refusal("{" + tensor("a", "F32", "[2.0]", "[0,8]") + "}"),
            "tensor \"a\": `shape`: expected whole numbers, 0 or more");
  EXPECT_EQ(refusal("{" + tensor("a", "F32", "[18446744073709551615]", "[0,8]") + "}"),
            "tensor \"a\": `shape`: too large a size");
  // 2^32 * 2^32 * 4 bytes would be 0 in 64 bits.
  EXPECT_EQ(refusal("{" + tensor("a", "F32", "[4294967296,4294967296]", "[0,0]") + "}"),
            "tensor \"a\": `shape`: too large");
  EXPECT_EQ(refusal("{" + tensor("a", "F32", "[9223372036854775807,9223372036854775807,0]", "[0,4]") + "}"),
            "tensor \"a\": its type and shape are 0 bytes, its data 4");
}

TEST(SafetensorsHeader, RefusesOffsets) {
  const std::string a = tensor("a", "F32", "[1]", "[0,4]");
  EXPECT_EQ(refusal("{" + tensor("a", "F32", "[1]", "[0,4,8]") + "}"),
            "tensor \"a\": `data_offsets`: expected 2 numbers, got 3");
  EXPECT_EQ(refusal("{" + tensor("a", "F32", "[1]", "[4,0]") + "}"), "tensor \"a\": its data end before they begin");
  EXPECT_EQ(refusal("{" + a + "," + tensor("b", "F32", "[1]", "[2,6]") + "}"),
            "tensor \"b\": its data begin at byte 2, those before it end at 4: they overlap");
  EXPECT_EQ(refusal("{" + tensor("b", "F32", "[1]", "[4,8]") + "}"),
            "tensor \"b\": its data begin at byte 4, those before it end at 0: there is a hole");
  EXPECT_EQ(refusal("{" + tensor("a", "F32", "[4]", "[0,16]") + "}"),
            "tensor \"a\": its data end at byte 16, the file has 8 bytes of data");
  EXPECT_EQ(refusal("{" + a + "}"), "the tensors end at byte 4 of the data, which have 8");
  EXPECT_EQ(refusal("{}", 1), "the tensors end at byte 0 of the data, which have 1");
}

TEST(SafetensorsHeader, RefusesWhatIsThereTwice) {
  const std::string a = tensor("a", "F32", "[1]", "[0,4]");
  EXPECT_EQ(refusal("{" + a + "," + a + "}"), "the header has \"a\" twice");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})"),
            "the header has \"dtype\" twice");
  EXPECT_EQ(refusal(R"({"__metadata__":{},"__metadata__":{}})"), "the header has \"__metadata__\" twice");
}

// Processor time, because others may use the machine; the best of some rounds.
double seconds_to_parse(std::size_t tensors, int rounds) {
  SafetensorsHeader header;
  for (std::size_t i = 0; i < tensors; ++i) {
    header.tensors.push_back(
        {"model.layers." + std::to_string(i) + ".weight", StoredType::bf16, {2, 2}, 8 * i, 8 * i + 8});
  }
  const std::string bytes = safetensors_header_bytes(header);
  double best = 1e9;
  for (int round = 0; round < rounds; ++round) {
    const std::clock_t begin = std::clock();
    const SafetensorsHeader read = parse_safetensors_header(bytes.substr(8), 8 * tensors, "file");
    best = std::min(best, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
    EXPECT_EQ(read.tensors.size(), tensors);
    EXPECT_EQ(read.tensors.back(), header.tensors.back());
  }
  return best;
}

TEST(SafetensorsHeader, TimeIsLinearInTheNumberOfTensors) {
  const double few = seconds_to_parse(10'000, 3);
  const double many = seconds_to_parse(80'000, 2);
  EXPECT_LT(many, 24 * few) << "8 times as many took " << many << " s instead of " << few << " s";
  EXPECT_LT(seconds_to_parse(300'000, 1), 2.0);
}

}  // namespace
}  // namespace gnmr::models
