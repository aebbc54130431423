// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/checksum_manifest.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "gnmr/core/error.h"
#include "gnmr/io/checksum.h"
#include "io/temporary_folder.h"

namespace gnmr::io {
namespace {

using test::error_of;
using test::put_file;

FolderSums some_sums() {
  return {{"config.json", sums_of("{}")},
          {"empty", sums_of("")},
          {"model.safetensors",
           {.bytes = 123,
            .crc32c = 0xABU,
            .tensors = {{"a \"b\"", 0},
                        {"gr\xc3\xb6\xc3\x9f"
                         "e",
                         0xFFFFFFFFU}}}}};
}

// A manifest with this text before its own checksum.
std::string sealed(const std::string& body) {
  char digits[9];
  std::snprintf(digits, sizeof(digits), "%08x", crc32c(body));
  return body + "  \"crc32c\": \"" + digits + "\"\n}\n";
}

TEST(ChecksumManifest, ReadsBackWhatItWrote) {
  EXPECT_EQ(parse_checksums(write_checksums(some_sums())), some_sums());
  EXPECT_EQ(parse_checksums(write_checksums({})), FolderSums{});
  EXPECT_EQ(write_checksums({{"x", sums_of("123456789")}}),
            "{\n  \"version\": 1,\n  \"files\": {\n    \"x\": {\"bytes\": 9, \"crc32c\": \"e3069283\"}},\n"
            "  \"crc32c\": \"05533d19\"\n}\n");
}

TEST(ChecksumManifest, EveryFlippedBitAndEveryCutIsNoticed) {
  const std::string good = write_checksums(some_sums());
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_THROW(parse_checksums(bad), Error) << bit;
  }
  for (std::size_t size = 0; size < good.size(); ++size) EXPECT_THROW(parse_checksums(good.substr(0, size)), Error);
}

TEST(ChecksumManifest, RefusesWhatItsOwnSumDoesNotFind) {
  const auto refusal = [](const std::string& body) { return error_of<Error>([&] { parse_checksums(sealed(body)); }); };
  EXPECT_EQ(refusal("{\n  \"version\": 2, \"files\": {},\n"), "version 2, this program reads 1");
  EXPECT_EQ(refusal("{\n  \"version\": 1,\n"), "`files` is missing");
  EXPECT_EQ(refusal("{\n  \"version\": 1, \"version\": 1, \"files\": {},\n"), "\"version\" is there twice");
  EXPECT_TRUE(refusal("x").starts_with("not JSON: "));
  const auto file = [&](const std::string& text) {
    return refusal("{\n  \"version\": 1, \"files\": {\"f\": " + text + "},\n");
  };
  EXPECT_EQ(file("1"), "\"f\": expected a JSON object, got number");
  EXPECT_EQ(file(R"({"bytes": -1, "crc32c": "00000000"})"), "\"f\": `bytes`: expected no less than 0, got -1");
  EXPECT_EQ(file(R"({"bytes": 1, "crc32c": 5})"), "\"f\": `crc32c`: expected a string, got number");
  EXPECT_EQ(file(R"({"bytes": 1, "crc32c": "0000000G"})"), "\"f\": `crc32c`: expected 8 hexadecimal digits");
  EXPECT_EQ(file(R"({"bytes": 1, "crc32c": "00000000", "tensors": []})"),
            "\"f\": `tensors`: expected an object, got array");
}

TEST(ChecksumManifest, StandsBesideItsFiles) {
  const test::TemporaryFolder folder;
  const std::string file = folder.file("config.json");
  const std::string manifest = folder.file("checksums.json");
  EXPECT_FALSE(load_checksums(folder.file("")));
  EXPECT_FALSE(load_checksums_of(file));
  save_checksums(folder.file(""), some_sums());
  EXPECT_EQ(load_checksums(folder.file("")), some_sums());
  EXPECT_EQ(load_checksums_of(file), sums_of("{}"));
  EXPECT_FALSE(load_checksums_of(folder.file("other"))) << "a file that is not listed needs no checksum";
  EXPECT_NO_THROW(check_content("{}", sums_of("{}"), file));
  EXPECT_EQ(error_of<Error>([&] { check_content("{", sums_of("{}"), file); }),
            file + ": it has 1 bytes, it was written with 2");
  EXPECT_TRUE(error_of<Error>([&] {
                check_content("[]", sums_of("{}"), file);
              }).starts_with(file + ": damaged, or changed since it was written: its CRC-32C is "));
  put_file(manifest, "{}");
  EXPECT_TRUE(error_of<Error>([&] { load_checksums(folder.file("")); }).starts_with(manifest + ": damaged"));
  std::filesystem::remove(manifest);
  std::filesystem::create_symlink("nowhere", manifest);
  EXPECT_TRUE(error_of<Error>([&] { load_checksums(folder.file("")); }).starts_with(manifest + ": cannot open it"));
}

}  // namespace
}  // namespace gnmr::io
