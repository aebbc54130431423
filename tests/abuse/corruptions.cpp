// SPDX-License-Identifier: Apache-2.0
#include "abuse/corruptions.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "abuse/command.h"
#include "abuse/damage.h"
#include "abuse/same_run.h"
#include "abuse/samples.h"
#include "gnmr/core/error.h"
#include "io/temporary_folder.h"

namespace gnmr::abuse {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kCorruptionStream = 3;
constexpr std::size_t kTrainedEvery = 12;  // training takes a hundred times as long as reading
constexpr std::size_t kLongestMessage = 4000;
// Reading takes milliseconds and some megabytes; LibTorch maps more than a gigabyte before it does anything.
constexpr Limits kQuickLimits{.memory_mib = 1024, .cpu_seconds = 20, .wall = std::chrono::seconds(60)};
constexpr Limits kTrainedLimits{.memory_mib = 8192, .cpu_seconds = 60, .wall = std::chrono::seconds(120)};

Words with_program(const Settings& settings, const Words& words) {
  Words all{settings.program};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

/// Whether a message names the damaged file. A file that is whole in itself but does not fit the others may be found by
/// way of these: then another input of the command is named. Of a checkpoint it must be the file.
bool names_file(const std::string& err, const Sample& sample) {
  if (err.find(fs::path(sample.file).filename().string()) != std::string::npos) return true;
  if (sample.promise == Promise::noticed_or_harmless) return false;
  if (!sample.conflict.empty() && err.find(sample.conflict) != std::string::npos) return true;
  return std::any_of(sample.command.begin(), sample.command.end(), [&](const std::string& word) {
    return fs::exists(sample.folder + "/" + word) && err.find(word) != std::string::npos;
  });
}

/// What is wrong with a message on standard error; empty: nothing.
std::string message_problem(const std::string& err, const Sample& sample) {
  if (err.find("gnmr: ") == std::string::npos) return "there is no message";
  if (err.find("[json.exception") != std::string::npos) return "the message is that of a library";
  if (!names_file(err, sample)) return "the message does not name " + sample.file;
  const std::string message = err.substr(err.rfind("gnmr: "));
  if (message.size() > kLongestMessage) return fmt::format("the message has {} bytes", message.size());
  const auto is_control = [](char character) {
    const auto byte = static_cast<unsigned char>(character);
    return (byte < 0x20 && character != '\n') || byte == 0x7F;
  };
  if (std::any_of(message.begin(), message.end(), is_control)) return "the message has control characters";
  return {};
}

/// A checkpoint that is refused: the message says from which one the run can go on.
std::string way_out_problem(const std::string& err, const Sample& sample) {
  const bool newest = sample.file.find(fmt::format("step-{:08}", kNewestStep)) != std::string::npos;
  const std::string earlier = fmt::format("step-{:08}", kEarlierStep);
  if (sample.promise != Promise::noticed_or_harmless || !newest) return {};
  return err.find(earlier) != std::string::npos ? std::string()
                                                : "the message does not name the newest intact checkpoint, " + earlier;
}

class CorruptionCampaign {
 public:
  CorruptionCampaign(const Settings& settings, Tally& tally) : settings_(settings), tally_(tally) {
    make_samples(settings, folder_.file("samples"), quick_, trained_);
    check_intact();
  }

  void run(std::size_t number) {
    Dice dice(settings_.seed, kCorruptionStream, number);
    const bool trains = !trained_.empty() && number % kTrainedEvery == 0;
    const Sample& sample =
        trains ? trained_[number / kTrainedEvery % trained_.size()] : quick_[dice.below(quick_.size())];
    const std::string scratch = folder_.file(fmt::format("case-{}", number));
    copy_tree(sample.folder, scratch);
    const Damage damage = damage_file(scratch + "/" + sample.file, dice);
    CaseResult result{.name = fmt::format("corruption:{}", number), .row = sample.name};
    result.command = shell_line(with_program(settings_, sample.command));
    const std::string problem = run_in(scratch, sample, result);
    if (!problem.empty()) {
      result.failure = fmt::format("{} of {} ({}): {}", damage.kind, sample.file, damage.details, problem);
      if (!settings_.keep.empty()) copy_tree(scratch, settings_.keep + "/" + result.name);
    }
    tally_.add(result);
    for (const char* const ending : {"", ".out", ".err", ".start"}) test::remove_tree(scratch + ending);
  }

 private:
  /// What is wrong with what the program makes of the damaged file.
  std::string run_in(const std::string& scratch, const Sample& sample, CaseResult& result) {
    RunningCommand command(scratch, with_program(settings_, sample.command),
                           sample.trains ? kTrainedLimits : kQuickLimits);
    const lab::ChildEnd end = command.wait();
    result.seconds = command.seconds();
    result.output = command.err();
    result.outcome = end.signal != 0 ? "crash" : end.status == 0 ? "read" : "refused";
    if (command.timed_out()) return "it did not end in time";
    if (end.signal != 0) return end.text();
    if (end.status == 0) {
      if (sample.promise != Promise::noticed_or_harmless) return {};
      const std::string difference = checkpoint_difference(intact_run_, scratch + "/" + kTrainedRun, kTrainedSteps);
      return difference.empty() ? difference : "not noticed, and " + difference;
    }
    // What a run writes to cannot be written where a folder has its name.
    if (end.status < 2 || end.status > 4) return end.text();
    std::string problem = message_problem(result.output, sample);
    if (problem.empty()) problem = way_out_problem(result.output, sample);
    return problem.empty() ? problem : fmt::format("{}, but {}", end.text(), problem);
  }

  /// A sample that is not read without damage shows nothing.
  void check_intact() {
    const auto runs = [&](const Sample& sample, const std::string& scratch) {
      copy_tree(sample.folder, scratch);
      RunningCommand command(scratch, with_program(settings_, sample.command),
                             sample.trains ? kTrainedLimits : kQuickLimits);
      const lab::ChildEnd end = command.wait();
      if (!end.good()) {
        throw Error(fmt::format("{}: intact, but {}: {}", shell_line(with_program(settings_, sample.command)),
                                end.text(), command.err()));
      }
    };
    for (const Sample& sample : quick_) {
      const std::string scratch = folder_.file("intact");
      runs(sample, scratch);
      test::remove_tree(scratch);
    }
    Words last;
    for (const Sample& sample : trained_) {
      if (sample.command == last) continue;
      last = sample.command;
      const bool resumed = sample.promise == Promise::noticed_or_harmless;
      const std::string scratch = folder_.file(resumed ? "resumed" : "intact");
      test::remove_tree(scratch);
      runs(sample, scratch);
      if (resumed) intact_run_ = scratch + "/" + kTrainedRun;
    }
  }

  const Settings& settings_;
  Tally& tally_;
  test::TemporaryFolder folder_;
  std::vector<Sample> quick_;
  std::vector<Sample> trained_;
  std::string intact_run_;
};

}  // namespace

void run_corruptions(const Settings& settings, Tally& tally) {
  CorruptionCampaign campaign(settings, tally);
  if (!settings.only.empty()) {
    campaign.run(wanted_number(settings));
    return;
  }
  in_parallel(settings.jobs, [&](std::size_t number) {
    if (number >= settings.corruptions) return false;
    campaign.run(number);
    tally.progress("corruptions", number, settings.corruptions);
    return true;
  });
}

}  // namespace gnmr::abuse
