// SPDX-License-Identifier: Apache-2.0
// What the cases came to: progress while they run, a table and the failures at the end, each with the command that
// repeats it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace gnmr::abuse {

/// What is asked for.
struct Settings {
  std::string program;  // gnmr
  std::string python;   // with torch; empty: no runs of two processes
  std::string package;  // the folder that has the Python package
  std::string keep;     // where folders of failed cases are kept; empty: nowhere
  std::string only;     // one case, such as kill:3
  std::uint64_t seed = 1;
  std::size_t kills = 0;
  std::size_t corruptions = 0;
  std::size_t jobs = 1;
  bool with_engine = false;  // whether the program can train
};

/// How a case ended.
struct CaseResult {
  std::string name;          // kill:3, corruption:42
  std::string row;           // of the table
  std::string outcome = {};  // a column of the table
  double seconds = 0;
  std::string failure = {};  // empty: as promised
  std::string command = {};  // what was run
  std::string output = {};   // what the program printed on standard error
};

/// Collects results of all threads.
class Tally {
 public:
  explicit Tally(const Settings& settings) : settings_(settings) {}

  void add(const CaseResult& result);

  /// Says now and then how far things are; `done` of `planned`.
  void progress(const std::string& what, std::size_t done, std::size_t planned);

  /// Prints table and failures; whether there were none.
  bool print() const;

 private:
  struct Row {
    std::map<std::string, std::size_t> outcomes;
    std::size_t failures = 0;
    double longest = 0;
  };

  const Settings& settings_;
  mutable std::mutex mutex_;
  std::map<std::string, Row> rows_;
  std::vector<CaseResult> failures_;
  std::chrono::steady_clock::time_point next_progress_{};
};

/// Calls `work` with 0, 1, ... in `jobs` threads until it returns false.
void in_parallel(std::size_t jobs, const std::function<bool(std::size_t)>& work);

/// The number of the case that --only names, where it is of this kind: `kill`, `corruption`.
bool is_wanted(const Settings& settings, const std::string& kind);
std::size_t wanted_number(const Settings& settings);

}  // namespace gnmr::abuse
