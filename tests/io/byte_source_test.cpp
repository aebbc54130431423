// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/byte_source.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "io/trace_testing.h"

namespace gnmr::io {
namespace {

using testing::message_of;

std::string gzipped(const std::string& text) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string read_everything(ByteSource& source, std::size_t piece = 1000) {
  std::string text;
  std::string buffer(piece, '\0');
  for (std::size_t count = source.read(buffer); count > 0; count = source.read(buffer)) text.append(buffer, 0, count);
  return text;
}

std::string random_text(std::size_t size) {
  std::mt19937 random(5);
  std::string text(size, '\0');
  for (char& character : text) character = static_cast<char>('a' + random() % 7);
  return text;
}

TEST(ByteSource, PlainAndCompressedBytesAreTheSame) {
  const std::string text = random_text(700000);
  for (const std::string& bytes : {text, gzipped(text)}) {
    const auto source = memory_byte_source("memory", bytes);
    EXPECT_EQ(read_everything(*source), text);
    EXPECT_EQ(source->bytes_read(), bytes.size());
    EXPECT_EQ(source->bytes_total(), bytes.size());
    source->rewind();
    EXPECT_EQ(read_everything(*source, 77), text);
  }
}

TEST(ByteSource, ShortInputs) {
  for (const std::string& text : {std::string(), std::string("a"), std::string("\x1f"), std::string("\x1f\x8b")}) {
    EXPECT_EQ(read_everything(*memory_byte_source("memory", text)), text);
  }
  EXPECT_EQ(read_everything(*memory_byte_source("memory", gzipped(""))), "");
}

TEST(ByteSource, GzipMembersFollowEachOther) {
  const std::string padding(700, '\0');
  EXPECT_EQ(read_everything(*memory_byte_source("m", gzipped("one ") + gzipped("") + gzipped("two"))), "one two");
  EXPECT_EQ(read_everything(*memory_byte_source("m", gzipped("one") + padding)), "one");
}

TEST(ByteSource, DamagedGzipIsAnError) {
  const std::string whole = gzipped(random_text(5000));
  for (const std::size_t size : {std::size_t{3}, std::size_t{15}, whole.size() / 2, whole.size() - 1}) {
    EXPECT_EQ(message_of([&] { read_everything(*memory_byte_source("x.gz", whole.substr(0, size))); }),
              "x.gz: the compressed data ends too early");
  }
  std::string flipped = whole;
  flipped[flipped.size() - 6] = static_cast<char>(flipped[flipped.size() - 6] ^ 1);
  const std::string damaged = message_of([&] { read_everything(*memory_byte_source("x.gz", flipped)); });
  EXPECT_EQ(damaged.substr(0, 36), "x.gz: the compressed data is damaged");
  EXPECT_THROW(read_everything(*memory_byte_source("x.gz", whole + "garbage")), Error);
}

TEST(ByteSource, FilesAndTheirErrors) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "gnmr_byte_source";
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "trace.csv").string();
  std::ofstream(path, std::ios::binary) << gzipped("step,a\n1,2\n");
  EXPECT_EQ(testing::read_path(path).rows, (std::vector<testing::Row>{{1, {2}}}));
  EXPECT_EQ(message_of([&] { open_byte_source(path + ".not"); }),
            path + ".not: cannot be opened: No such file or directory");
  EXPECT_EQ(message_of([&] { open_byte_source(folder.string()); }), folder.string() + ": is a directory");
  std::filesystem::remove_all(folder);
}

TEST(ByteSource, PeekingTakesNothingAway) {
  PeekableSource source(memory_byte_source("memory", "abcdef"));
  EXPECT_TRUE(source.peek_more(2));
  EXPECT_TRUE(source.peek_more(1));
  EXPECT_EQ(source.peeked(), "abc");
  EXPECT_EQ(read_everything(source, 2), "abcdef");
  EXPECT_FALSE(source.peek_more(1));
  source.rewind();
  EXPECT_EQ(read_everything(source), "abcdef");
}

}  // namespace
}  // namespace gnmr::io
