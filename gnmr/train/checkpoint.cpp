// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/checkpoint.h"

#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/io/number_text.h"
#include "gnmr/io/text_error.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/models/model_files.h"
#include "gnmr/train/checkpoint_files.h"

namespace gnmr::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kTemporaryPrefix = ".unfinished-";

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
    // The run's own folder is not made here: where it is gone, it is somebody else's to say what to do.
    fs::create_directory(fs::path(path_).parent_path());
    fs::create_directory(path_);
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

// The files of one checkpoint, each verified when it is read.
class CheckpointReader {
 public:
  explicit CheckpointReader(const std::string& folder) : folder_(folder) {
    if (!fs::is_directory(folder)) throw Error("there is no such folder");
    sums_ = io::load_checksums(folder);
    if (!sums_) return;
    // What is missing or cut short is found before anything is read.
    FileSizes sizes;
    for (const auto& [name, file] : *sums_) sizes[name] = file.bytes;
    check_sizes(folder_, sizes);
  }

  bool is_verified() const { return sums_.has_value(); }

  TrainerJson trainer() const {
    constexpr std::size_t kLargestTrainerJson = std::size_t{16} << 20;
    TrainerJson trainer;
    const std::string content = content_of(kTrainerFile, kLargestTrainerJson);
    try {
      trainer = parse_trainer_json(content);
    } catch (const Error& error) {
      throw io::error_at(kTrainerFile, error.what());
    }
    if (!sums_ && !trainer.checksums.empty()) {
      throw Error(trainer.checksums + " is missing; to load the rest unverified, remove the line `checksums` of " +
                  kTrainerFile);
    }
    check_sizes(folder_, trainer.files);
    for (const auto& [name, size] : trainer.files) sums_for(name.c_str());
    return trainer;
  }

  models::TensorFile model(const FileSizes& files) const {
    // Neither torch nor transformers reads them; a config.json that has changed would make another model of the
    // weights.
    if (files.contains("config.json")) content_of("config.json");
    return models::read_model_folder(folder_, sums_.value_or(io::FolderSums{}));
  }

  models::NamedTensors tensors_of(const char* name) const {
    return models::read_safetensors(folder_ + "/" + name, sums_for(name)).tensors;
  }

  std::string content_of(const char* name, std::size_t largest = std::numeric_limits<std::size_t>::max()) const {
    const std::string path = folder_ + "/" + name;
    std::string content = io::read_whole_file(path, largest);
    if (const io::FileSums* const expected = sums_for(name)) io::check_content(content, *expected, path);
    return content;
  }

 private:
  const io::FileSums* sums_for(const char* name) const {
    if (!sums_) return nullptr;
    const auto found = sums_->find(name);
    if (found == sums_->end()) throw Error(std::string(io::kChecksumFile) + " does not list " + name);
    return &found->second;
  }

  std::string folder_;
  std::optional<io::FolderSums> sums_;
};

LoadedCheckpoint load_folder(const std::string& folder, std::int64_t step) {
  const CheckpointReader reader(folder);
  TrainerJson trainer = reader.trainer();
  if (trainer.info.step != step) throw Error("trainer.json is that of step " + std::to_string(trainer.info.step));
  LoadedCheckpoint loaded{.info = std::move(trainer.info),
                          .torch_version = std::move(trainer.torch_version),
                          .folder = folder,
                          .model = reader.model(trainer.files),
                          .optimizer = reader.tensors_of(kOptimizerFile),
                          .low_path = {},
                          .controller = {},
                          .verified = reader.is_verified()};
  if (trainer.files.contains(kLowPathFile)) loaded.low_path = reader.tensors_of(kLowPathFile);
  if (trainer.files.contains(kControllerFile)) loaded.controller = reader.content_of(kControllerFile);
  return loaded;
}

std::string described(const CheckpointStore& store, const CheckpointStore::Intact& intact) {
  return "that of step " + std::to_string(intact.step) + " (" + store.folder_of(intact.step) + ")" +
         (intact.verified ? "" : ", as far as can be seen without checksums");
}

}  // namespace

CheckpointStore::CheckpointStore(std::string folder, std::int64_t keep, std::optional<std::string> run)
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
  const auto latest = std::find_if(all.rbegin(), all.rend(), [this](auto step) { return owner(step) != Owner::other; });
  return latest == all.rend() ? 0 : *latest;
}

void CheckpointStore::write(const CheckpointParts& parts, const std::string& folder) const {
  io::FolderSums sums = parts.write_model(folder);
  const auto write_tensors = [&](const char* name, const models::NamedTensors& tensors) {
    sums[name] = models::write_safetensors(folder + "/" + name, tensors);
  };
  const auto write_bytes = [&](const char* name, const std::string& content) {
    sums[name] = io::sums_of(content);
    io::replace_file(folder + "/" + name, content);
  };
  write_tensors(kOptimizerFile, parts.optimizer);
  if (!parts.low_path.empty()) write_tensors(kLowPathFile, parts.low_path);
  if (!parts.controller.empty()) write_bytes(kControllerFile, parts.controller);
  FileSizes sizes;
  for (const auto& [name, file] : sums) sizes[name] = file.bytes;
  write_bytes(kTrainerFile, write_trainer_json({parts.info, TORCH_VERSION, sizes, std::string(io::kChecksumFile)}));
  io::save_checksums(folder, sums);
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
    if (fs::exists(target) && owner(step) != Owner::run) set_aside(step);
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
  const auto newest = std::find_if(all.rbegin(), all.rend(), [this](auto step) { return owner(step) == Owner::run; });
  return newest == all.rend() ? "" : "step " + std::to_string(*newest) + " (" + folder_of(*newest) + ")";
}

CheckpointStore::Owner CheckpointStore::owner(std::int64_t step) const {
  try {
    return CheckpointReader(folder_of(step)).trainer().info.run == run_.value_or("") ? Owner::run : Owner::other;
  } catch (const std::exception&) {
    return Owner::unknown;
  }
}

void CheckpointStore::set_damaged_aside(std::int64_t after) const {
  for (const std::int64_t step : steps()) {
    if (step > after && owner(step) == Owner::unknown) set_aside(step);
  }
}

void CheckpointStore::set_aside(std::int64_t step) const {
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
    if (step == newest || (keep_ == 0 && step < newest) || owner(step) != Owner::run) continue;
    if (step > newest) remove(step);
    if (step < newest) older.push_back(step);
  }
  if (keep_ == 0) return;
  const auto kept = static_cast<std::size_t>(keep_ - 1);
  for (std::size_t i = 0; i + kept < older.size(); ++i) remove(older[i]);
}

std::string save_patiently(const CheckpointStore& store, const CheckpointParts& parts, std::chrono::seconds longest,
                           const std::function<void(const std::string&)>& warn,
                           const std::function<std::string()>& obstacle) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kLongestPause{8};
  const Clock::time_point end = Clock::now() + longest;
  for (std::chrono::seconds pause{1};; pause = std::min(2 * pause, kLongestPause)) {
    std::string failure = obstacle ? obstacle() : "";
    if (failure.empty()) failure = store.save(parts);
    if (failure.empty() || Clock::now() >= end) return failure;
    warn(failure + "; next try in " + std::to_string(pause.count()) + " s");
    std::this_thread::sleep_until(std::min(Clock::now() + pause, end));
  }
}

LoadedCheckpoint CheckpointStore::load(std::int64_t step) const {
  std::string problem;
  try {
    LoadedCheckpoint loaded = load_folder(folder_of(step), step);
    if (!run_ || loaded.info.run == *run_) return loaded;
    problem = std::string(kTrainerFile) + " is of another run";
  } catch (const std::exception& error) {
    problem = error.what();
  }
  throw unusable(step, problem);
}

Error CheckpointStore::unusable(std::int64_t step, const std::string& problem) const {
  std::string what_to_do = "no other checkpoint of this run is intact: begin anew with another --out";
  if (const auto intact = newest_intact(step)) {
    what_to_do = "the newest intact one is " + described(*this, *intact) +
                 ": go on from it with --resume --resume-step " + std::to_string(intact->step);
  }
  return io::error_at(folder_of(step), "this checkpoint cannot be used: " + problem + "; " + what_to_do);
}

void CheckpointStore::restoring(std::int64_t step, std::string_view file, const std::function<void()>& restore) const {
  std::string problem;
  try {
    restore();
    return;
  } catch (const std::exception& error) {
    problem = error.what();
  }
  throw unusable(step, std::string(file) + ": " + problem);
}

std::optional<CheckpointStore::Intact> CheckpointStore::newest_intact(std::int64_t except) const {
  const std::vector<std::int64_t> all = steps();
  for (auto step = all.rbegin(); step != all.rend(); ++step) {
    if (*step == except) continue;
    try {
      const LoadedCheckpoint loaded = load_folder(folder_of(*step), *step);
      if (!run_ || loaded.info.run == *run_) return Intact{.step = *step, .verified = loaded.verified};
    } catch (const std::exception&) {
      // An older one may be intact.
    }
  }
  return std::nullopt;
}

models::TensorFile read_initial_model(const std::string& path) {
  std::string problem;
  try {
    return models::read_model_tensors(path);
  } catch (const Error& error) {
    problem = error.what();
  }
  std::error_code ignored;
  fs::path folder = fs::absolute(path, ignored).lexically_normal();
  if (!folder.has_filename() || !fs::is_directory(folder, ignored)) folder = folder.parent_path();
  const std::int64_t step = step_of(folder.filename().string());
  if (step == 0) throw Error(problem);
  const CheckpointStore store(folder.parent_path().string(), 0);
  const auto intact = store.newest_intact(step);
  throw Error(problem + (intact ? "; the newest intact checkpoint beside it is " + described(store, *intact)
                                : "; no other checkpoint beside it is intact"));
}

}  // namespace gnmr::train
