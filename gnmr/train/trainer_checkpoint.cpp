// SPDX-License-Identifier: Apache-2.0
// How a run is saved, and how it goes on.
#include <chrono>
#include <cstring>
#include <map>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/io/number_text.h"
#include "gnmr/models/model_files.h"
#include "gnmr/train/trainer.h"

namespace gnmr::train {
namespace {

constexpr const char* kModeKey = "mode";
constexpr const char* kSkippedKey = "skipped_updates";
constexpr const char* kModelKey = "model_config";
constexpr const char* kRecipeKey = "recipe";
constexpr const char* kTokensKey = "tokens_a_step";
constexpr const char* kRuleKey = "gradient_rule";
constexpr const char* kLaboratoryKey = "laboratory";
constexpr const char* kHeldKey = "held_passes";
constexpr std::chrono::milliseconds kLongestWait{500};  // for a disk that takes no more

/// Any bytes as text.
std::string as_hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += {kDigits[value >> 4U], kDigits[value & 15U]};
  }
  return text;
}

/// The bytes of such a text; what is none gives other bytes, which their owner refuses.
std::string from_hex(std::string_view text) {
  const auto value = [](char digit) { return digit <= '9' ? digit - '0' : digit - 'a' + 10; };
  std::string bytes;
  for (std::size_t index = 0; index + 1 < text.size(); index += 2) {
    bytes += static_cast<char>(value(text[index]) * 16 + value(text[index + 1]));
  }
  return bytes;
}

}  // namespace

/// What is known of batches that were held and are to come again: number, loss and squares of each, as bytes, since
/// they may be infinite or NaN.
std::string Trainer::held_text() const {
  std::string text;
  for (const auto& [batch, pass] : held_) {
    std::vector<double> numbers{pass.loss};
    numbers.insert(numbers.end(), pass.squares.begin(), pass.squares.end());
    const std::string_view bytes(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double));
    text += std::to_string(batch) + ' ' + as_hex(bytes) + '\n';
  }
  return text;
}

void Trainer::restore_held(const std::string& text) {
  const std::size_t expected = (units_->parameters().size() + 1) * sizeof(double);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    const std::size_t blank = std::min(line.find(' '), line.size());
    std::int64_t batch = 0;
    const std::string bytes = from_hex(line.substr(std::min(blank + 1, line.size())));
    if (!io::parse_whole(line.substr(0, blank), batch) || bytes.size() != expected) {
      throw Error(std::string(kHeldKey) + " is not of this model");
    }
    HeldPass& pass = held_[batch];
    pass.squares.resize(units_->parameters().size());
    std::memcpy(&pass.loss, bytes.data(), sizeof(double));
    std::memcpy(pass.squares.data(), bytes.data() + sizeof(double), bytes.size() - sizeof(double));
  }
}

/// What shapes the arithmetic of a run beyond the words of its settings: the content of files, the number of ranks.
std::map<std::string, std::string> Trainer::arithmetic() const {
  return {
      {kModelKey, models::config_json(model_->config())},
      {kRecipeKey, settings_.recipe == "none" ? "none" : recipes::recipe_text(settings_.recipe)},
      {kTokensKey, std::to_string(settings_.batch * settings_.sequence * settings_.accumulate * collective_.size())}};
}

void Trainer::resume() {
  const CheckpointStore store(folder_.checkpoints(), settings_.keep_checkpoints, info_.id);
  if (writes_files()) store.remove_leftovers();
  if (writes_files() && settings_.resume_step > 0) store.set_damaged_aside(settings_.resume_step);
  const std::int64_t step = settings_.resume_step > 0 ? settings_.resume_step : store.find_latest();
  if (step == 0) {
    observer_.noted("there is no checkpoint yet: the run begins again");
    return;
  }
  LoadedCheckpoint loaded = store.load(step);
  if (loaded.info.data != data_->fingerprint()) {
    throw Error(loaded.folder + ": the data is not what the run was begun with; give the same files with --data");
  }
  for (const auto& [key, value] : arithmetic()) {
    const auto before = loaded.info.extra.find(key);
    if (before != loaded.info.extra.end() && before->second != value) {
      throw Error(loaded.folder + ": the run was begun with another " + key +
                  " (a file or the number of processes has changed since); begin another run with another --out");
    }
  }
  models::assign_weights(*model_, loaded.model, loaded.folder);
  store.restoring(step, kOptimizerFile, [&] { optimizer_->load_state(loaded.optimizer); });
  store.restoring(step, kLowPathFile, [&] { units_->restore_memory(loaded.low_path); });
  controller_state_ = std::move(loaded.controller);
  store.restoring(step, kTrainerFile, [&] { restore_extra(loaded.info.extra); });
  next_step_ = step + 1;
  outcome_.last_step = step;
}

/// What `save_checkpoint` put beside the parts of a checkpoint.
void Trainer::restore_extra(const std::map<std::string, std::string>& extra) {
  const auto mode = extra.find(kModeKey);
  if (mode != extra.end()) restored_mode_ = io::mode_kind(mode->second);
  const auto skipped = extra.find(kSkippedKey);
  if (skipped != extra.end() && !io::parse_whole(skipped->second, outcome_.skipped_updates)) {
    throw Error(std::string(kSkippedKey) + " is no whole number");
  }
  const auto rule = extra.find(kRuleKey);
  if (rule != extra.end() && laboratory_ != nullptr && laboratory_->gradient_rule() != nullptr) {
    laboratory_->gradient_rule()->restore(from_hex(rule->second));
  }
  const auto laboratory = extra.find(kLaboratoryKey);
  if (laboratory != extra.end() && laboratory_ != nullptr) laboratory_->restore(laboratory->second);
  const auto held = extra.find(kHeldKey);
  if (held != extra.end()) restore_held(held->second);
}

/// A folder that was removed or renamed under the run is made again, so that checkpoints have a place. Files that are
/// open stay what they were: their lines go with the old folder.
void Trainer::notice_lost_folder() {
  if (!writes_files() || !locks_.back().is_gone()) return;
  if (lost_folder_.empty()) {
    lost_folder_ = folder_.path() + " was removed, renamed or replaced during the run (noticed at step " +
                   std::to_string(outcome_.last_step) +
                   "): journal, metrics and older checkpoints are not there any more";
    observer_.noted("WARNING: " + lost_folder_);
  }
  try {
    locks_.emplace_back(folder_, false);
    run::save_run_info(folder_, info_);
  } catch (const Error& error) {
    lost_why_ = error.what();
  }
}

/// To the journal and to whoever watches.
void Trainer::warn(const std::string& text) {
  supervisor_->note(text);
  observer_.noted(text);
}

void Trainer::save_checkpoint(std::int64_t step, bool is_last) {
  if (!writes_files()) return;
  // The run's files hold at least what the checkpoint has seen: a run that goes on supersedes the rest.
  supervisor_->flush(kLongestWait);
  metrics_->flush(kLongestWait);
  if (evidence_) evidence_->flush(kLongestWait);
  if (harm_) harm_->flush(kLongestWait);
  if (errors_) errors_->flush();
  if (norms_) norms_->flush();
  std::map<std::string, std::string> extra = arithmetic();
  extra[kSkippedKey] = std::to_string(outcome_.skipped_updates);
  if (!held_.empty()) extra[kHeldKey] = held_text();
  if (laboratory_ != nullptr) extra[kLaboratoryKey] = laboratory_->save();
  if (laboratory_ != nullptr && laboratory_->gradient_rule() != nullptr) {
    extra[kRuleKey] = as_hex(laboratory_->gradient_rule()->save());
  }
  // What the kill switch asked for goes on; what the settings asked for they ask for again.
  if (supervisor_->mode() != first_mode_) extra[kModeKey] = to_string(supervisor_->mode());
  const CheckpointParts parts{
      .info = {.step = step,
               .run = info_.id,
               .settings = settings_,
               .program = info_.program,
               .data = data_->fingerprint(),
               .extra = std::move(extra)},
      .optimizer = optimizer_->state(),
      .low_path = units_->memory(),
      .controller = supervisor_->save(),
      .write_model = [this](const std::string& folder) { return models::save_model(*model_, folder); }};
  const CheckpointStore store(folder_.checkpoints(), settings_.keep_checkpoints, info_.id);
  const std::chrono::seconds longest{is_last ? settings_.checkpoint_retry
                                             : std::min<std::int64_t>(settings_.checkpoint_retry, 1)};
  const auto obstacle = [this]() -> std::string {
    notice_lost_folder();
    return locks_.back().is_gone() ? folder_.path() + " is no longer this run's: " + lost_why_ : "";
  };
  const std::string failure = save_patiently(
      store, parts, longest, [this](const std::string& text) { warn(text); }, obstacle);
  outcome_.unsaved.clear();
  if (failure.empty()) return;
  const std::string newest = locks_.back().is_gone() ? "" : store.newest_text();
  const std::string stake =
      newest.empty() ? "no step of this run is saved" : "the newest good checkpoint is that of " + newest;
  outcome_.unsaved = failure + "; " + stake;
  if (!newest.empty()) outcome_.unsaved += "; make room, then continue with --resume";
  if (is_last) return;
  warn(failure + "; training continues, but " + stake + ": what came after it is lost if the run ends before the " +
       "next checkpoint is written");
}

}  // namespace gnmr::train
