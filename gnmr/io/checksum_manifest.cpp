// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/checksum_manifest.h"

#include <fmt/format.h>

#include <charconv>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include "gnmr/core/error.h"
#include "gnmr/io/checksum.h"
#include "gnmr/io/json.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/text_error.h"
#include "gnmr/io/whole_file.h"

namespace gnmr::io {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kManifestVersion = 1;
constexpr std::size_t kLargestManifest = std::size_t{1} << 30;
constexpr std::size_t kDigits = 8;
// The end of a manifest: what it has behind the part that its own checksum covers.
constexpr std::string_view kOwnSumKey = "  \"crc32c\": \"";
constexpr std::string_view kEnd = "\"\n}\n";

std::string hex_of(std::uint32_t sum) { return fmt::format("{:08x}", sum); }

std::uint32_t sum_of_hex(std::string_view text, std::string_view key) {
  std::uint32_t sum = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, sum, 16);
  if (text.size() != kDigits || error != std::errc() || stop != end || hex_of(sum) != text) {
    throw Error(fmt::format("`{}`: expected {} hexadecimal digits", key, kDigits));
  }
  return sum;
}

// What is said of a manifest must hold before its words are believed: a changed bit may leave it valid JSON.
void check_own_sum(std::string_view text) {
  const std::size_t tail = kOwnSumKey.size() + kDigits + kEnd.size();
  if (text.size() < tail || !text.ends_with(kEnd)) throw Error("damaged: it does not end as it should");
  const std::size_t covered = text.size() - tail;
  if (text.substr(covered, kOwnSumKey.size()) != kOwnSumKey) throw Error("damaged: its own checksum is missing");
  const std::uint32_t expected = sum_of_hex(text.substr(covered + kOwnSumKey.size(), kDigits), "crc32c");
  const std::uint32_t found = crc32c(text.substr(0, covered));
  if (found != expected) {
    throw Error(fmt::format("damaged: its checksum is {}, it was written with {}", hex_of(found), hex_of(expected)));
  }
}

FileSums parse_file(const JsonObject& file) {
  FileSums sums{.bytes = file.count("bytes"), .crc32c = sum_of_hex(file.text("crc32c"), "crc32c")};
  const auto tensors = file.object_if("tensors");
  if (!tensors) return sums;
  for (const auto& [name, sum] : tensors->json().items())
    sums.tensors.emplace(name, sum_of_hex(tensors->text(name), name));
  return sums;
}

std::string path_in(const std::string& folder) { return (fs::path(folder) / kChecksumFile).string(); }

}  // namespace

FileSums sums_of(std::string_view content) { return {.bytes = content.size(), .crc32c = crc32c(content)}; }

std::string write_checksums(const FolderSums& sums) {
  std::string text = fmt::format("{{\n  \"version\": {},\n  \"files\": {{", kManifestVersion);
  std::string_view separator = "\n    ";
  for (const auto& [name, file] : sums) {
    text += separator;
    separator = ",\n    ";
    append_json_string(text, name);
    text += fmt::format(": {{\"bytes\": {}, \"crc32c\": \"{}\"", file.bytes, hex_of(file.crc32c));
    std::string_view begin = ", \"tensors\": {\n      ";
    for (const auto& [tensor, sum] : file.tensors) {
      text += begin;
      begin = ",\n      ";
      append_json_string(text, tensor);
      text += ": \"" + hex_of(sum) + '"';
    }
    text += file.tensors.empty() ? "}" : "}}";
  }
  text += "},\n";
  const std::uint32_t own = crc32c(text);
  text += kOwnSumKey;
  text += hex_of(own);
  text += kEnd;
  return text;
}

FolderSums parse_checksums(std::string_view text) {
  check_own_sum(text);
  const Json document = parse_json(text);
  const JsonObject object(document);
  object.check_version(kManifestVersion);
  FolderSums sums;
  const JsonObject files = object.object("files");
  for (const auto& [name, file] : files.json().items()) {
    try {
      sums.emplace(name, parse_file(JsonObject(file)));
    } catch (const Error& error) {
      throw error_at(in_quotes(name), error.what());
    }
  }
  return sums;
}

void save_checksums(const std::string& folder, const FolderSums& sums) {
  replace_file(path_in(folder), write_checksums(sums));
}

std::optional<FolderSums> load_checksums(const std::string& folder) {
  const std::string path = path_in(folder);
  std::error_code ignored;
  // A link that leads nowhere, or a folder, is not "no manifest".
  if (fs::symlink_status(path, ignored).type() == fs::file_type::not_found) return std::nullopt;
  const std::string text = read_whole_file(path, kLargestManifest);
  try {
    return parse_checksums(text);
  } catch (const Error& error) {
    throw error_at(path,
                   std::string(error.what()) +
                       "; the files beside it cannot be verified. To load them unverified, remove it and, beside a "
                       "trainer.json, the line `checksums` in that");
  }
}

std::optional<FileSums> load_checksums_of(const std::string& path) {
  const std::optional<FolderSums> sums = load_checksums(fs::path(path).parent_path().string());
  if (!sums) return std::nullopt;
  const auto found = sums->find(fs::path(path).filename().string());
  return found == sums->end() ? std::nullopt : std::optional(found->second);
}

void check_sum(std::uint32_t found, std::uint32_t expected, const std::string& place) {
  if (found == expected) return;
  throw error_at(place, fmt::format("damaged, or changed since it was written: its CRC-32C is {}, {} has {}",
                                    hex_of(found), kChecksumFile, hex_of(expected)));
}

void check_size(std::uint64_t found, const FileSums& expected, const std::string& path) {
  if (found == expected.bytes) return;
  throw error_at(path, fmt::format("it has {} bytes, it was written with {}", found, expected.bytes));
}

void check_content(std::string_view content, const FileSums& expected, const std::string& path) {
  check_size(content.size(), expected, path);
  check_sum(crc32c(content), expected.crc32c, path);
}

}  // namespace gnmr::io
