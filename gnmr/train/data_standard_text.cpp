// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "gnmr/core/error.h"
#include "gnmr/train/data_source.h"

namespace gnmr::train {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMostBytes = std::uintmax_t{32} << 20;

// Other people's packages, and tests, which repeat themselves.
bool is_left_out(const std::string& folder) {
  constexpr std::array<std::string_view, 7> kNames{"site-packages", "dist-packages", "test",     "tests",
                                                   "idle_test",     "__pycache__",   "ensurepip"};
  return std::find(kNames.begin(), kNames.end(), folder) != kNames.end();
}

std::string folder_that_python_names() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(
      ::popen(
          "trap '' INT; python3 -c 'import sysconfig; print(sysconfig.get_paths()[\"stdlib\"])' 2>/dev/null </dev/null",
          "r"),
      [](std::FILE* file) { return ::pclose(file); });
  std::string answer;
  if (!pipe) return answer;
  std::array<char, 4096> part;
  while (std::fgets(part.data(), part.size(), pipe.get()) != nullptr) answer += part.data();
  while (answer.ends_with('\n')) answer.pop_back();
  return answer;
}

// The newest first.
std::vector<std::string> usual_folders() {
  std::vector<std::string> folders;
  for (const char* parent : {"/usr/lib", "/usr/local/lib"}) {
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(parent, ignored)) {
      if (entry.path().filename().string().starts_with("python3")) folders.push_back(entry.path().string());
    }
  }
  std::sort(folders.rbegin(), folders.rend());
  return folders;
}

}  // namespace

StandardText standard_text_in(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code failed;
  auto entry = fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied, failed);
  for (; !failed && entry != fs::recursive_directory_iterator(); entry.increment(failed)) {
    std::error_code ignored;
    if (entry->is_directory(ignored)) {
      if (is_left_out(entry->path().filename().string())) entry.disable_recursion_pending();
    } else if (entry->path().extension() == ".py" && entry->is_regular_file(ignored)) {
      found.push_back(entry->path().string());
    }
  }
  std::sort(found.begin(), found.end());
  StandardText text{.folder = folder, .files = {}};
  std::uintmax_t bytes = 0;
  for (const std::string& path : found) {
    const std::uintmax_t size = fs::file_size(path, failed);
    if (failed || size == 0 || bytes + size > kMostBytes) continue;
    bytes += size;
    text.files.push_back(path);
  }
  return text;
}

StandardText find_standard_text() {
  std::vector<std::string> folders = usual_folders();
  folders.insert(folders.begin(), folder_that_python_names());
  for (const std::string& folder : folders) {
    if (folder.empty()) continue;
    StandardText text = standard_text_in(folder);
    if (!text.files.empty()) return text;
  }
  throw Error(
      "[data] no data was given, and this machine has no Python standard library to read instead: name text or .bin "
      "files with --data");
}

}  // namespace gnmr::train
