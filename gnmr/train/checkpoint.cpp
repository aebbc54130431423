// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/checkpoint.h"

#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <thread>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/io/number_text.h"
#include "gnmr/io/text_error.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/train/checkpoint_files.h"

namespace gnmr::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kTemporaryPrefix = ".unfinished-";
constexpr const char* kModel = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kLowPath = "low_path.safetensors";
constexpr const char* kController = "controller.gnmr";
constexpr const char* kTrainer = "trainer.json";
constexpr std::size_t kLargestTrainerJson = std::size_t{16} << 20;

// The step of a folder's name; 0 where it is no checkpoint's.
std::int64_t step_of(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return 0;
  const std::string_view digits = std::string_view(name).substr(kStepPrefix.size());
  std::int64_t step = 0;
  if (digits.size() < 8 || !io::is_digit(digits[0]) || !io::parse_whole(digits, step)) return 0;
  return step;
}

// A folder that is gone again unless it was renamed.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {
    if (!remove_folder(path_)) io::throw_output_errno(path_, "cannot remove what an earlier run has left");
    fs::create_directories(path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { remove_folder(path_); }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void check_sizes(const std::string& folder, const FileSizes& expected) {
  const FileSizes found = sizes_in(folder);
  for (const auto& [name, size] : expected) {
    const auto file = found.find(name);
    if (file == found.end()) throw Error(name + " is missing");
    if (file->second != size) {
      throw Error(name + " has " + std::to_string(file->second) + " bytes, it was written with " +
                  std::to_string(size));
    }
  }
}

models::NamedTensors tensors_of(const std::string& folder, const char* name) {
  return models::read_safetensors(folder + "/" + name).tensors;
}

TrainerJson read_trainer_json(const std::string& folder) {
  try {
    return parse_trainer_json(io::read_whole_file(folder + "/" + kTrainer, kLargestTrainerJson));
  } catch (const Error& error) {
    throw Error(std::string(kTrainer) + ": " + error.what());
  }
}

LoadedCheckpoint load_folder(const std::string& folder, std::int64_t step) {
  if (!fs::is_directory(folder)) throw Error("there is no such folder");
  TrainerJson trainer = read_trainer_json(folder);
  if (trainer.info.step != step) throw Error("trainer.json is that of step " + std::to_string(trainer.info.step));
  check_sizes(folder, trainer.files);
  if (trainer.files.contains(kModel)) tensors_of(folder, kModel);  // only to see that it can be read
  LoadedCheckpoint loaded{.info = std::move(trainer.info),
                          .torch_version = std::move(trainer.torch_version),
                          .folder = folder,
                          .optimizer = tensors_of(folder, kOptimizer),
                          .low_path = {},
                          .controller = {}};
  if (trainer.files.contains(kLowPath)) loaded.low_path = tensors_of(folder, kLowPath);
  if (trainer.files.contains(kController)) loaded.controller = io::read_whole_file(folder + "/" + kController);
  return loaded;
}

}  // namespace

CheckpointStore::CheckpointStore(std::string folder, std::int64_t keep, std::string run)
    : folder_(std::move(folder)), keep_(keep), run_(std::move(run)) {
  if (keep_ < 0) throw Error("[checkpoints] expected to keep 0 (all) or more, got " + std::to_string(keep_));
}

std::string CheckpointStore::folder_of(std::int64_t step) const {
  std::array<char, 32> digits;
  std::snprintf(digits.data(), digits.size(), "%08lld", static_cast<long long>(step));
  return folder_ + "/" + std::string(kStepPrefix) + digits.data();
}

void CheckpointStore::remove_leftovers() const {
  std::error_code failed;
  std::vector<fs::path> leftovers;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, failed)) {
    if (entry.path().filename().string().starts_with(kTemporaryPrefix)) leftovers.push_back(entry.path());
  }
  for (const fs::path& leftover : leftovers) remove_folder(leftover.string());
}

std::vector<std::int64_t> CheckpointStore::steps() const {
  std::vector<std::int64_t> steps;
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, failed)) {
    const std::int64_t step = step_of(entry.path().filename().string());
    std::error_code ignored;
    if (step > 0 && entry.is_directory(ignored)) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::int64_t CheckpointStore::find_latest() const {
  const std::vector<std::int64_t> all = steps();
  return all.empty() ? 0 : all.back();
}

void CheckpointStore::write(const CheckpointParts& parts, const std::string& folder) const {
  parts.write_model(folder);
  models::write_safetensors(folder + "/" + kOptimizer, parts.optimizer);
  if (!parts.low_path.empty()) models::write_safetensors(folder + "/" + kLowPath, parts.low_path);
  if (!parts.controller.empty()) io::replace_file(folder + "/" + kController, parts.controller);
  io::replace_file(folder + "/" + kTrainer, write_trainer_json({parts.info, TORCH_VERSION, sizes_in(folder)}));
  force_to_disk(folder);
}

std::string CheckpointStore::save(const CheckpointParts& parts) const {
  const std::int64_t step = parts.info.step;
  const std::string target = folder_of(step);
  // Whatever goes wrong here, training must not end for it; errors of torch and of the file system are among it.
  try {
    if (step < 1) throw Error("expected a step from 1 on, got " + std::to_string(step));
    const TemporaryFolder temporary(folder_ + "/" + std::string(kTemporaryPrefix) + std::to_string(::getpid()) + "-" +
                                    std::to_string(step));
    write(parts, temporary.path());
    if (fs::exists(target) && !owns(step)) keep_foreign(step);
    exchange_folders(temporary.path(), target);
    force_entries_to_disk(folder_);
  } catch (const std::exception& error) {
    return target + ": this checkpoint could not be written: " + error.what();
  }
  prune(step);
  return {};
}

std::string CheckpointStore::newest_text() const {
  const std::vector<std::int64_t> all = steps();
  const auto newest = std::find_if(all.rbegin(), all.rend(), [this](std::int64_t step) { return owns(step); });
  return newest == all.rend() ? "" : "step " + std::to_string(*newest) + " (" + folder_of(*newest) + ")";
}

// One that cannot be read is nobody's.
bool CheckpointStore::owns(std::int64_t step) const {
  try {
    return read_trainer_json(folder_of(step)).info.run == run_;
  } catch (const Error&) {
    return false;
  }
}

void CheckpointStore::keep_foreign(std::int64_t step) const {
  std::string kept;
  for (int number = 1; kept.empty() || fs::exists(kept); ++number) {
    kept = folder_of(step) + ".kept-" + std::to_string(number);
  }
  if (::rename(folder_of(step).c_str(), kept.c_str()) != 0) {
    io::throw_output_errno(folder_of(step), "another run's folder is in the way and cannot be renamed");
  }
}

// The name goes first: a folder that is half removed must not look like a checkpoint.
void CheckpointStore::remove(std::int64_t step) const {
  const std::string condemned = folder_ + "/" + std::string(kTemporaryPrefix) + "removed-" + std::to_string(step);
  remove_folder(condemned);
  if (::rename(folder_of(step).c_str(), condemned.c_str()) == 0) remove_folder(condemned);
}

void CheckpointStore::prune(std::int64_t newest) const {
  std::vector<std::int64_t> older;
  for (const std::int64_t step : steps()) {
    if (step == newest || !owns(step)) continue;
    if (step > newest) remove(step);
    if (step < newest) older.push_back(step);
  }
  if (keep_ == 0) return;
  const auto kept = static_cast<std::size_t>(keep_ - 1);
  for (std::size_t i = 0; i + kept < older.size(); ++i) remove(older[i]);
}

std::string save_patiently(const CheckpointStore& store, const CheckpointParts& parts, std::chrono::seconds longest,
                           const std::function<void(const std::string&)>& warn) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kLongestPause{8};
  const Clock::time_point end = Clock::now() + longest;
  for (std::chrono::seconds pause{1};; pause = std::min(2 * pause, kLongestPause)) {
    std::string failure = store.save(parts);
    if (failure.empty() || Clock::now() >= end) return failure;
    warn(failure + "; next try in " + std::to_string(pause.count()) + " s");
    std::this_thread::sleep_until(std::min(Clock::now() + pause, end));
  }
}

LoadedCheckpoint CheckpointStore::load(std::int64_t step) const {
  const std::string folder = folder_of(step);
  std::string problem;
  try {
    return load_folder(folder, step);
  } catch (const std::exception& error) {
    problem = error.what();
  }
  const std::vector<std::int64_t> all = steps();
  const auto after = std::lower_bound(all.begin(), all.end(), step);
  const std::string what_to_do = after == all.begin()
                                     ? "there is no earlier one: begin anew with another --out"
                                     : "remove this folder to go on from step " + std::to_string(*(after - 1)) + " (" +
                                           folder_of(*(after - 1)) + ")";
  throw io::error_at(folder, "this checkpoint cannot be used: " + problem + "; " + what_to_do);
}

}  // namespace gnmr::train
