// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/run_checkpoint.h"

#include <map>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/io/number_text.h"
#include "gnmr/recipes/recipe.h"

namespace gnmr::train {
namespace {

// Names of entries in a checkpoint, beside those of an experiment.
constexpr const char* kModeKey = "mode";
constexpr const char* kSkippedKey = "skipped_updates";
constexpr const char* kHeldKey = "held_passes";
constexpr const char* kModelKey = "model_config";
constexpr const char* kRecipeEntry = "recipe";
constexpr const char* kTokensKey = "tokens_per_step";

/// What shapes the arithmetic of a run beyond the words of its settings: the content of files, the number of ranks.
std::map<std::string, std::string> arithmetic_of(const RunParts& parts) {
  return {{kModelKey, parts.model->config_text()},
          {kRecipeEntry, parts.has_low_path() ? recipes::recipe_text(parts.settings.recipe) : "none"},
          {kTokensKey, std::to_string(parts.step_tokens())}};
}

/// Whether an entry of `arithmetic_of` says the same as that of a checkpoint; of recipes name and description may
/// differ.
bool computes_alike(const std::string& key, const std::string& before, const std::string& now) {
  if (before == now) return true;
  if (key != kRecipeEntry || before == "none" || now == "none") return false;
  return recipes::computes_alike(recipes::parse_recipe(before), recipes::parse_recipe(now));
}

/// What `checkpoint_of` put beside the parts of a checkpoint; the mode that was in force, if it is among them.
std::optional<Mode> restore_extra(RunParts& parts, const std::map<std::string, std::string>& extra) {
  const auto skipped = extra.find(kSkippedKey);
  if (skipped != extra.end() && !io::parse_whole(skipped->second, parts.outcome.skipped_updates)) {
    throw Error(std::string(kSkippedKey) + " is no whole number");
  }
  if (parts.experiment != nullptr) parts.experiment->restore(extra);
  const auto held = extra.find(kHeldKey);
  if (held != extra.end()) parts.held.restore(held->second, parts.units->parameters().size());
  const auto mode = extra.find(kModeKey);
  return mode != extra.end() ? io::mode_kind(mode->second) : std::nullopt;
}

}  // namespace

CheckpointParts checkpoint_of(const RunParts& parts, std::int64_t step) {
  std::map<std::string, std::string> extra = arithmetic_of(parts);
  extra[kSkippedKey] = std::to_string(parts.outcome.skipped_updates);
  if (!parts.held.is_empty()) extra[kHeldKey] = parts.held.save();
  if (parts.experiment != nullptr) extra.merge(parts.experiment->save());
  // What the kill switch asked for goes on; what the settings asked for they ask for again.
  const Mode asked = parts.switches_units() ? Mode::armed : Mode::watch;
  if (parts.supervisor->mode() != asked) extra[kModeKey] = to_string(parts.supervisor->mode());
  return {.info = {.step = step,
                   .run = parts.writer->info().id,
                   .settings = parts.settings,
                   .program = parts.writer->info().program,
                   .data = parts.data->fingerprint(),
                   .extra = std::move(extra)},
          .optimizer = parts.optimizer->state(),
          .low_path = parts.units->memory(),
          .controller = parts.supervisor->save(),
          .write_model = [&parts](const std::string& folder) { return parts.model->save_to(folder); }};
}

RestoredControl restore_checkpoint(RunParts& parts) {
  const CheckpointStore store = parts.writer->checkpoints();
  const std::int64_t asked = parts.settings.resume_step;
  if (parts.writer->writes()) store.remove_leftovers();
  if (parts.writer->writes() && asked > 0) store.set_damaged_aside(asked);
  const std::int64_t step = asked > 0 ? asked : store.find_latest();
  if (step == 0) {
    parts.observer.noted("there is no checkpoint yet: the run begins again");
    return {};
  }
  LoadedCheckpoint loaded = store.load(step);
  if (loaded.info.data != parts.data->fingerprint()) {
    throw Error(loaded.folder + ": the data is not what the run was begun with; give the same files with --data");
  }
  const std::map<std::string, std::string>& extra = loaded.info.extra;
  for (const auto& [key, value] : arithmetic_of(parts)) {
    const auto before = extra.find(key);
    if (before != extra.end() && !computes_alike(key, before->second, value)) {
      throw Error(loaded.folder + ": the run was begun with another " + key +
                  " (a file or the number of processes has changed since); begin another run with another --out");
    }
  }
  parts.model->assign(loaded.model, loaded.folder);
  store.restoring(step, kOptimizerFile, [&] { parts.optimizer->load_state(loaded.optimizer); });
  store.restoring(step, kLowPathFile, [&] { parts.units->restore_memory(loaded.low_path); });
  RestoredControl restored{.state = std::move(loaded.controller)};
  store.restoring(step, kTrainerFile, [&] { restored.mode = restore_extra(parts, extra); });
  parts.next_step = step + 1;
  parts.outcome.last_step = step;
  return restored;
}

}  // namespace gnmr::train
