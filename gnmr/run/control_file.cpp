// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/control_file.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <string_view>

#include "gnmr/core/error.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/whole_file.h"

namespace gnmr::run {
namespace {

constexpr std::size_t kEnoughForAWord = 256;
constexpr std::time_t kClockGrainSeconds = 2;  // of the coarsest file system's times
constexpr std::string_view kWhite = " \t\r\n";

std::string first_word(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(kWhite);
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_first_of(kWhite, begin) - begin);
}

}  // namespace

std::optional<ControlNews> ControlFile::poll() {
  struct stat status {};
  if (::stat(path_.c_str(), &status) != 0) {
    seen_.reset();
    return std::nullopt;
  }
  const Stamp stamp{status.st_dev, status.st_ino, status.st_size, status.st_mtim};
  const bool same = seen_ && seen_->device == stamp.device && seen_->file == stamp.file && seen_->size == stamp.size &&
                    seen_->modified.tv_sec == stamp.modified.tv_sec &&
                    seen_->modified.tv_nsec == stamp.modified.tv_nsec;
  if (same && settled_) return std::nullopt;
  seen_ = stamp;
  // `armed` and `watch` have the same size: two changes within the clock's grain would look like one.
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  settled_ = now.tv_sec > stamp.modified.tv_sec + kClockGrainSeconds;
  if (!S_ISREG(status.st_mode)) {
    if (same) return std::nullopt;
    return ControlNews{.note = fmt::format("{}: not a regular file, ignored", path_)};
  }
  return read(same);
}

std::optional<ControlNews> ControlFile::read(bool same_file) {
  std::string word;
  std::string problem;
  try {
    word = first_word(io::read_file_start(path_, kEnoughForAWord));
    // Whoever writes it empties it first: the word is on its way.
    if (word.empty()) return std::nullopt;
  } catch (const Error& error) {
    problem = error.what();
  }
  const std::string& found = problem.empty() ? word : problem;
  if (same_file && last_ == found) return std::nullopt;
  last_ = found;
  if (!problem.empty()) return ControlNews{.note = problem};
  ControlNews news{.mode = io::mode_kind(word)};
  if (!news.mode) {
    news.note = fmt::format("{}: expected armed, watch or high, got {}; nothing changes", path_, io::in_quotes(word));
  }
  return news;
}

}  // namespace gnmr::run
