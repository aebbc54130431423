// SPDX-License-Identifier: Apache-2.0
#include "abuse/tally.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <set>
#include <thread>

#include "abuse/command.h"

namespace gnmr::abuse {
namespace {

constexpr std::size_t kFailuresShown = 30;
constexpr std::chrono::seconds kProgressEvery{10};
constexpr std::size_t kOutputShown = 1500;

/// What a terminal can show: other bytes become `?`.
std::string shown(std::string text) {
  for (char& character : text) {
    if ((character < ' ' || character > '~') && character != '\n') character = '?';
  }
  return text.substr(0, kOutputShown);
}

std::string repeating_command(const Settings& settings, const std::string& name) {
  Words words{
      "build/bin/gnmr_abuse", "--seed", std::to_string(settings.seed), "--only", name, "--keep", "kept", "--program",
      settings.program};
  if (!settings.python.empty()) words.insert(words.end(), {"--python", settings.python, "--package", settings.package});
  return shell_line(words);
}

}  // namespace

void Tally::add(const CaseResult& result) {
  const std::lock_guard lock(mutex_);
  Row& row = rows_[result.row];
  ++row.outcomes[result.outcome];
  row.longest = std::max(row.longest, result.seconds);
  if (result.failure.empty()) return;
  ++row.failures;
  failures_.push_back(result);
  fmt::print("FAILED {} ({}): {}\n", result.name, result.row, result.failure);
  std::fflush(stdout);
}

void Tally::progress(const std::string& what, std::size_t done, std::size_t planned) {
  const std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (now < next_progress_) return;
  next_progress_ = now + kProgressEvery;
  fmt::print("{}: {} of {}, {} failed\n", what, done, planned, failures_.size());
  std::fflush(stdout);
}

bool Tally::print() const {
  const std::lock_guard lock(mutex_);
  std::set<std::string> columns;
  std::size_t width = 4;
  for (const auto& [name, row] : rows_) {
    width = std::max(width, name.size());
    for (const auto& [outcome, count] : row.outcomes) columns.insert(outcome);
  }
  fmt::print("\n{:<{}}", "what", width);
  for (const std::string& column : columns) fmt::print("  {}", column);
  fmt::print("  failed  longest\n");
  std::map<std::string, std::size_t> sums;
  for (const auto& [name, row] : rows_) {
    fmt::print("{:<{}}", name, width);
    for (const std::string& column : columns) {
      const auto found = row.outcomes.find(column);
      const std::size_t count = found == row.outcomes.end() ? 0 : found->second;
      sums[column] += count;
      fmt::print("  {:>{}}", count, column.size());
    }
    fmt::print("  {:>6}  {:>5.2f} s\n", row.failures, row.longest);
  }
  fmt::print("{:<{}}", "all", width);
  for (const std::string& column : columns) fmt::print("  {:>{}}", sums[column], column.size());
  fmt::print("  {:>6}\n", failures_.size());
  for (std::size_t i = 0; i < std::min(failures_.size(), kFailuresShown); ++i) {
    const CaseResult& failure = failures_[i];
    fmt::print("\n{}: {}: {}\n  command: {}\n  repeat:  {}\n", failure.name, failure.row, failure.failure,
               failure.command, repeating_command(settings_, failure.name));
    if (!failure.output.empty()) fmt::print("  output:  {}\n", shown(failure.output));
  }
  if (failures_.size() > kFailuresShown) fmt::print("\n... and {} more\n", failures_.size() - kFailuresShown);
  return failures_.empty();
}

void in_parallel(std::size_t jobs, const std::function<bool(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> over{false};
  std::exception_ptr problem;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (std::size_t job = 0; job < jobs; ++job) {
    threads.emplace_back([&] {
      try {
        while (!over && work(next++)) {
        }
      } catch (...) {
        const std::lock_guard lock(mutex);
        problem = std::current_exception();
        over = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (problem) std::rethrow_exception(problem);
}

bool is_wanted(const Settings& settings, const std::string& kind) {
  return settings.only.empty() || settings.only.starts_with(kind + ":");
}

std::size_t wanted_number(const Settings& settings) {
  return static_cast<std::size_t>(std::stoull(settings.only.substr(settings.only.find(':') + 1)));
}

}  // namespace gnmr::abuse
