// SPDX-License-Identifier: Apache-2.0
// Runs the built program as a user does: through a shell, with its output and exit status.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace gnmr::testing {

struct ProgramRun {
  int status = -1;
  std::string out;
  std::string err;
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

#ifdef GNMR_GOLDEN_DIR
inline std::string golden(const std::string& name) { return std::string(GNMR_GOLDEN_DIR) + "/" + name; }
#endif

/// A folder that goes away with the test.
class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "gnmr-app-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::string path(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }

 private:
  std::filesystem::path path_;
};

/// `gnmr` and `arguments`, as a shell reads them; `before` comes in front, such as `cat FILE |`.
inline ProgramRun run_gnmr(const std::string& arguments, const std::string& before = "") {
  const Scratch scratch;
  const std::string command =
      before + " " GNMR_PROGRAM " " + arguments + " >" + scratch.path("out") + " 2>" + scratch.path("err") + " ";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(scratch.path("out")), read_file(scratch.path("err"))};
}

}  // namespace gnmr::testing
