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

void Trainer::restore_held(const std::string& text, const std::string& folder) {
  const std::size_t expected = (units_->parameters().size() + 1) * sizeof(double);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    const std::size_t blank = std::min(line.find(' '), line.size());
    std::int64_t batch = 0;
    const std::string bytes = from_hex(line.substr(std::min(blank + 1, line.size())));
    if (!io::parse_whole(line.substr(0, blank), batch) || bytes.size() != expected) {
      throw Error(folder + ": trainer.json: " + kHeldKey + " is not of this model");
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
  const CheckpointStore store(folder_.checkpoints(), settings_.keep_checkpoints);
  if (writes_files()) store.remove_leftovers();
  const std::int64_t step = store.find_latest();
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
  models::load_weights(*model_, loaded.folder);
  optimizer_->load_state(loaded.optimizer);
  units_->restore_memory(loaded.low_path);
  controller_state_ = std::move(loaded.controller);
  const auto mode = loaded.info.extra.find(kModeKey);
  if (mode != loaded.info.extra.end()) restored_mode_ = io::mode_kind(mode->second);
  const auto skipped = loaded.info.extra.find(kSkippedKey);
  if (skipped != loaded.info.extra.end() && !io::parse_whole(skipped->second, outcome_.skipped_updates)) {
    throw Error(loaded.folder + ": trainer.json: " + kSkippedKey + " is no whole number");
  }
  const auto rule = loaded.info.extra.find(kRuleKey);
  if (rule != loaded.info.extra.end() && laboratory_ != nullptr && laboratory_->gradient_rule() != nullptr) {
    laboratory_->gradient_rule()->restore(from_hex(rule->second));
  }
  const auto laboratory = loaded.info.extra.find(kLaboratoryKey);
  if (laboratory != loaded.info.extra.end() && laboratory_ != nullptr) laboratory_->restore(laboratory->second);
  const auto held = loaded.info.extra.find(kHeldKey);
  if (held != loaded.info.extra.end()) restore_held(held->second, loaded.folder);
  next_step_ = step + 1;
  outcome_.last_step = step;
}

void Trainer::save_checkpoint(std::int64_t step) {
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
  if (supervisor_->mode() != first_mode_) extra[kModeKey] = io::to_string(supervisor_->mode());
  const CheckpointParts parts{
      .info = {.step = step,
               .settings = settings_,
               .program = info_.program,
               .data = data_->fingerprint(),
               .extra = std::move(extra)},
      .optimizer = optimizer_->state(),
      .low_path = units_->memory(),
      .controller = supervisor_->save(),
      .write_model = [this](const std::string& folder) { models::save_model(*model_, folder); }};
  const std::string failure = CheckpointStore(folder_.checkpoints(), settings_.keep_checkpoints).save(parts);
  if (failure.empty()) return;
  supervisor_->note(failure);
  observer_.noted(failure);
}

}  // namespace gnmr::train
