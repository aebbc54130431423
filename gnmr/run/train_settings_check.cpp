// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <initializer_list>

#include "gnmr/core/controller.h"
#include "gnmr/core/error.h"
#include "gnmr/core/message_text.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/number_text.h"
#include "gnmr/run/setting_checks.h"
#include "gnmr/run/switch_rule.h"
#include "gnmr/run/train_settings.h"

namespace gnmr::run {

bool Interval::contains(double value) const {
  if (!std::isfinite(value)) return false;
  return (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high);
}

void refuse_setting(std::string_view name, std::string_view expected, std::string_view got) {
  throw Error(fmt::format("[settings] `{}`: expected {}, got {}", name, expected, got));
}

void check_whole(std::string_view name, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high) {
    refuse_setting(name, fmt::format("a whole number from {} to {}", low, high), fmt::format("{}", value));
  }
}

void check_number(std::string_view name, double value, const Interval& range, std::string_view expected) {
  if (!range.contains(value)) refuse_setting(name, expected, fmt::format("{}", value));
}

namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;
constexpr std::int64_t kMostThreads = 4096;

void check_word(std::string_view name, const std::string& value, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) {
    if (value == word) return;
  }
  refuse_setting(name, fmt::format("one of {}", fmt::join(words, ", ")),
                 io::in_quotes(value) + did_you_mean(value, words));
}

void check_entries(std::string_view name, const Texts& entries, std::string_view what) {
  for (const std::string& entry : entries) {
    if (entry.empty()) refuse_setting(name, what, "an empty text");
  }
}

void check_training(const TrainSettings& settings) {
  check_number("outliers", settings.outliers, {.low = 1, .high = 1e6}, "a number in [1, 1e6]");
  check_whole("steps", settings.steps, 1, kMostSteps);
  check_whole("batch", settings.batch, 1, kMostTokens);
  check_whole("sequence", settings.sequence, 1, kMostTokens);
  check_whole("accumulate", settings.accumulate, 1, kMostTokens);
  check_number("lr", settings.lr, {.low_open = true}, "a number above 0");
  check_number("min_lr", settings.min_lr, {.high = 1}, "a share in [0, 1]");
  check_whole("warmup", settings.warmup, 0, kMostSteps);
  check_number("weight_decay", settings.weight_decay, {}, "a number >= 0");
  check_number("beta1", settings.beta1, {.high = 1, .high_open = true}, "a number in [0, 1)");
  check_number("beta2", settings.beta2, {.high = 1, .high_open = true}, "a number in [0, 1)");
  check_number("clip", settings.clip, {}, "a number >= 0");
  check_whole("threads", settings.threads, 0, kMostThreads);
  check_word("device", settings.device, {"cpu", "cuda"});
  check_word("dtype", settings.dtype, {"float32", "bfloat16"});
  if (settings.dtype == "bfloat16" && settings.device != "cuda") {
    throw Error("--dtype bfloat16 needs --device cuda");
  }
  if (settings.graphs && settings.device != "cuda") throw Error("--graphs needs --device cuda");
}

void check_change(const TrainSettings& settings) {
  check_whole("then_at", settings.then_at, 0, kMostSteps);
  check_entries("then_data", settings.then_data, "a file");
  check_number("then_lr", settings.then_lr, {}, "a number >= 0");
  const bool changes = !settings.then_data.empty() || settings.then_lr > 0;
  if (changes && settings.then_at < 2) {
    refuse_setting("then_at", "at least 2 beside `then_data` or `then_lr`", fmt::format("{}", settings.then_at));
  }
  if (!changes && settings.then_at > 0) {
    refuse_setting("then_at", "`then_data` or `then_lr` beside it", fmt::format("{} alone", settings.then_at));
  }
}

void check_control(const TrainSettings& settings) {
  check_word("granularity", settings.granularity, {"layer", "product", "block"});
  check_word("save_activations", settings.save_activations, {"high", "fp8"});
  check_entries("allow", settings.allow, "a glob");
  check_entries("deny", settings.deny, "a glob");
  check_entries("always_high", settings.always_high, "a glob");
  check_word("controller", settings.controller, {"none", "gnmr", "watch"});
  check_whole("watch_steps", settings.watch_steps, 0, kMostSteps);
  check_number("patrol", settings.patrol, {.high = 1}, "a share in [0, 1]");
  if (settings.refresh != 0) check_number("refresh", settings.refresh, {.low = 1}, "0, or at least 1");
  check_word("evidence_from", settings.evidence_from, {"patrol", "casts"});
  check_whole("disarm_after", settings.disarm_after, 0, kMostSteps);
  for (const std::string& rule : settings.set) {
    try {
      parse_switch_rule(rule);
    } catch (const Error& error) {
      throw Error(fmt::format("[settings] `set`: {}", error.what()));
    }
  }
  if (settings.random_units.size() > 1) {
    refuse_setting("random_units", "one share", fmt::format("{} of them", settings.random_units.size()));
  }
  for (const std::string& share : settings.random_units) {
    double value = 0;
    const Interval inside{.low = 0, .high = 1, .low_open = true, .high_open = true};
    if (!io::parse_number(share, value) || !inside.contains(value)) {
      refuse_setting("random_units", "a share in (0, 1)", io::in_quotes(share));
    }
  }
}

/// What makes no sense together.
void check_combinations(const TrainSettings& settings) {
  const bool by_evidence =
      settings.options.selector == Selector::evidence || settings.options.selector == Selector::evidence_after_alarm;
  if (by_evidence && settings.evidence_from == "patrol" && settings.patrol == 0 && settings.controller == "gnmr") {
    refuse_setting("patrol", "above 0, since the selector goes by the patrol's errors", "0");
  }
  if (settings.options.guard == Guard::clip && settings.granularity == "product") {
    refuse_setting("guard", "none, skip or replay where units are GEMMs, which have no parameters of their own",
                   "clip");
  }
  if (settings.options.lag == 1 && settings.controller != "none") {
    check_options(settings.options, {.can_rerun = true});
  }
}

void check_output(const TrainSettings& settings) {
  check_whole("eval_every", settings.eval_every, 0, kMostSteps);
  check_whole("checkpoint_retry", settings.checkpoint_retry, 0, kMostSteps);
  check_whole("eval_batches", settings.eval_batches, 1, kMostTokens);
  check_whole("checkpoint_every", settings.checkpoint_every, 0, kMostSteps);
  check_whole("keep_checkpoints", settings.keep_checkpoints, 0, kMostSteps);
  check_whole("resume_step", settings.resume_step, 0, kMostSteps);
  if (settings.resume_step > 0 && !settings.resume) {
    refuse_setting("resume_step", "`resume` beside it (--resume)", fmt::format("{} alone", settings.resume_step));
  }
  check_whole("signals_every", settings.signals_every, 0, kMostSteps);
}

}  // namespace

void validate(const TrainSettings& settings) {
  if (settings.model.empty()) refuse_setting("model", "a name or a file", "an empty text");
  check_entries("data", settings.data, "a file");
  check_number("held_out", settings.held_out, {.low = 0, .high = 1, .low_open = true, .high_open = true},
               "a share in (0, 1)");
  check_change(settings);
  check_training(settings);
  if (settings.recipe.empty()) refuse_setting("recipe", "a name or a file", "an empty text");
  check_control(settings);
  check_output(settings);
  check_combinations(settings);
  gnmr::validate(settings.options);
}

std::string why_without_effect(std::string_view option, const TrainSettings& settings) {
  if (settings.controller == "none") return "there is no controller";
  if (settings.recipe == "none")
    return gnmr::why_without_effect(option, settings.options, {.can_rerun = true, .sites = 0});
  // The recipe says what errors its formats make; here it is enough that it does.
  return gnmr::why_without_effect(option, settings.options, {.can_rerun = true, .sites = 1, .expected_errors = {1}});
}

}  // namespace gnmr::run
