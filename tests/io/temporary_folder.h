// SPDX-License-Identifier: Apache-2.0
// A folder for one test that is gone with everything in it when the test ends.
#pragma once

#include <ftw.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace gnmr::test {

/// Removes a folder and all that is in it. Not std::filesystem's: torch 2.11's libraries have a copy of that one of
/// their own which crashes.
inline void remove_tree(const std::string& path) {
  const auto remove_one = [](const char* name, const struct stat*, int, FTW*) { return ::remove(name); };
  ::nftw(path.c_str(), remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/// An empty folder of its own.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "gnmr_test_XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "no temporary folder";
    path_ = pattern;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { remove_tree(path_); }

  /// The path of a file in it.
  std::string file(const std::string& name) const { return (path_ / name).string(); }

  /// How many entries it has.
  std::size_t entries() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator()));
  }

 private:
  std::filesystem::path path_;
};

/// The content of a file; empty where there is none.
inline std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Writes a file without any of the library's means.
inline void put_file(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

/// The lines of a text, without their line ends; a last line without one counts.
inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

/// The text of the exception of type `Thrown` that `call` throws; a failure where it throws none.
template <typename Thrown, typename Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Thrown& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace gnmr::test
