// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/explanation.h"

#include <fmt/format.h>

#include <filesystem>

#include "gnmr/core/error.h"
#include "gnmr/core/message_text.h"
#include "gnmr/io/printable.h"

namespace gnmr::report {
namespace {

/// What of the run is shown: `12 episodes`, `the 40 most important of 1203 episodes of steps 100 to 200`.
std::string shown_text(const Story& story, const StorySettings& settings) {
  std::string text =
      story.episodes.size() < story.episode_count
          ? fmt::format("the {} most important of {} episodes", story.episodes.size(), story.episode_count)
          : counted(story.episode_count, "episode");
  if (settings.from_step) text += fmt::format(" from step {}", *settings.from_step);
  if (settings.to_step) text += fmt::format(" to step {}", *settings.to_step);
  if (!settings.unit_glob.empty()) text += fmt::format(" with units {}", settings.unit_glob);
  if (story.episodes.size() < story.episode_count) text += "; --limit 0 shows all";
  return text;
}

/// `12 recoveries`, `the 40 costliest of 120 recoveries`.
std::string listed_text(const Story& story) {
  const std::string all = counted(story.recovery_count, "recovery", "recoveries");
  return story.recoveries.size() < story.recovery_count
             ? fmt::format("the {} costliest of {}; --limit 0 shows all", story.recoveries.size(), all)
             : all;
}

}  // namespace

RunFiles read_run_to_explain(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (path == "-" || !fs::is_directory(path, ignored)) return read_journal_alone(path);
  if (fs::exists(fs::path(path) / "suite.json", ignored)) {
    throw Error(path + ": a suite of runs: name one of them, in its folder `runs`");
  }
  if (!is_run_directory(path)) {
    throw Error(path + ": no run: looked for run.json and journal.jsonl, found neither");
  }
  RunFiles run = read_run_records(path);
  if (!run.journal) throw Error(path + ": there is no journal.jsonl: nothing is known of what happened");
  return run;
}

std::string explanation_text(const Story& story, const StorySettings& settings) {
  std::string text;
  const auto add = [&](const std::vector<std::string>& lines) {
    for (const std::string& line : lines) text += io::printable(line) + "\n";
  };
  add(summary_lines(story.summary));
  if (const std::vector<std::string> lines = recovery_lines(story); !lines.empty()) {
    add({"", "What each recovery was worth and cost (" + listed_text(story) + "):"});
    add(lines);
  }
  add({"", "What happened (" + shown_text(story, settings) + "):"});
  for (const Episode& episode : story.episodes) add(episode_lines(episode, story.summary));
  return text;
}

}  // namespace gnmr::report
