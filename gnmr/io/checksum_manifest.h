// SPDX-License-Identifier: Apache-2.0
// Checksums of the files of a folder, kept in a file beside them (`checksums.json`, docs/files.md).
//
// Goals: a changed bit in any file, or in the manifest itself, is found and named: the file, and the tensor where there
// is one; sums are computed while files are written. Non-goals: repair, protection against someone who means to
// deceive, files that a manifest does not list.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace gnmr::io {

/// The name of a manifest.
inline constexpr std::string_view kChecksumFile = "checksums.json";

/// Size and CRC-32C of one file. Where it has tensors, `crc32c` covers what is before their data.
struct FileSums {
  std::uint64_t bytes = 0;
  std::uint32_t crc32c = 0;
  std::map<std::string, std::uint32_t, std::less<>> tensors = {};

  bool operator==(const FileSums&) const = default;
};

/// By the names of files, without a folder.
using FolderSums = std::map<std::string, FileSums, std::less<>>;

/// Of a file with this content and no tensors.
FileSums sums_of(std::string_view content);

/// A manifest as text. Its last line but one is a checksum of all that is before it.
std::string write_checksums(const FolderSums& sums);

/// From text; an `Error` says what is wrong with it.
FolderSums parse_checksums(std::string_view text);

/// Puts a manifest into a folder (`replace_file`).
void save_checksums(const std::string& folder, const FolderSums& sums);

/// The manifest of a folder; nothing where it has none. An `Error` with its path where it is damaged.
std::optional<FolderSums> load_checksums(const std::string& folder);

/// What is known of the file at `path` from the manifest beside it; nothing where there is none, or it does not list
/// the file.
std::optional<FileSums> load_checksums_of(const std::string& path);

/// An `Error` that begins with `place` (a path, and a tensor where there is one) where the sums differ.
void check_sum(std::uint32_t found, std::uint32_t expected, const std::string& place);

/// An `Error` that begins with the path where the size of a file is another one.
void check_size(std::uint64_t found, const FileSums& expected, const std::string& path);

/// `check_size` and `check_sum` of a file without tensors.
void check_content(std::string_view content, const FileSums& expected, const std::string& path);

}  // namespace gnmr::io
