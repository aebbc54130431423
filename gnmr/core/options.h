// SPDX-License-Identifier: Apache-2.0
// The controller's options, each declared once.
//
// GNMR_OPTIONS is the only list: type, name, default, value in the preset `paper`, range and help. The struct, the
// presets, the checks, JSON, command-line flags, `--help` and docs/options.md are all derived from it.
//
// An option is a number, or one of a few words; a word is kept as its place in the list of words, in state files too,
// so these lists may only grow at their end.
//
// Goals: one place to add an option; a message that names the option and its range.
// Non-goals: reading or printing anything (gnmr/io does that).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "gnmr/core/gate_rule.h"

namespace gnmr {

/// Whole-number options are at most this.
inline constexpr double kMaxWhole = 2147483647.0;

/// The words of `Selector`, in its order.
inline constexpr std::array<std::string_view, 5> kSelectorWords{"auto", "norms", "evidence", "evidence-alarm", "trial"};

/// What protects the update of an alarmed step where no trial does.
enum class Guard : std::uint8_t { none = 0, clip = 1, skip = 2, replay = 3 };

/// The words of `Guard`, in its order.
inline constexpr std::array<std::string_view, 4> kGuardWords{"none", "clip", "skip", "replay"};

/// The values an option may take: an interval, perhaps with 0 added, perhaps whole numbers only; or one of some words.
struct OptionRange {
  double low = 0;
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;
  bool high_open = false;
  bool or_zero = false;         // 0 is allowed besides the interval
  bool whole = false;           // whole numbers only
  bool whole_from_one = false;  // whole numbers only from 1 on (`max_o`: a fraction, or a count)
  const char* text = "";        // the range in words, for messages and docs
  // Where there are words, the value is a place in their list, and nothing above counts.
  std::span<const std::string_view> words = {};

  /// Whether `value` lies in the range; NaN and infinities never do.
  bool contains(double value) const;

  /// The range for messages and docs: `text`, or the words.
  std::string description() const;
};

namespace option_ranges {
inline constexpr OptionRange kDecay{.low = 0, .high = 1, .high_open = true, .text = "[0, 1)"};
inline constexpr OptionRange kAtLeastOne{.low = 1, .text = ">= 1"};
inline constexpr OptionRange kThreshold{.low = 1e-6, .text = ">= 1e-6"};
inline constexpr OptionRange kZeroOrThreshold{.low = 1e-6, .or_zero = true, .text = "0 or >= 1e-6"};
inline constexpr OptionRange kUnitInterval{.low = 0, .high = 1, .text = "[0, 1]"};
inline constexpr OptionRange kWindow{.low = 1, .high = 1024, .whole = true, .text = "integer 1..1024"};
inline constexpr OptionRange kNotNegative{.low = 0, .text = ">= 0"};
inline constexpr OptionRange kZeroOrAboveOne{.low = 1, .low_open = true, .or_zero = true, .text = "0 or > 1"};
inline constexpr OptionRange kWholeFromOne{.low = 1, .high = kMaxWhole, .whole = true, .text = "integer >= 1"};
inline constexpr OptionRange kWholeFromZero{.low = 0, .high = kMaxWhole, .whole = true, .text = "integer >= 0"};
inline constexpr OptionRange kShare{.low = 0, .high = 1, .low_open = true, .text = "(0, 1]"};
inline constexpr OptionRange kBudget{
    .low = 0, .high = kMaxWhole, .whole_from_one = true, .text = "0, a fraction in (0, 1), or a whole number"};
inline constexpr OptionRange kSelectorRange{.words = kSelectorWords};
inline constexpr OptionRange kGuardRange{.words = kGuardWords};
inline constexpr OptionRange kTrials{.low = 0, .high = 100, .whole = true, .text = "integer 0..100"};
inline constexpr OptionRange kZeroOrAtLeastOne{.low = 1, .or_zero = true, .text = "0 or >= 1"};
inline constexpr OptionRange kLag{.low = 0, .high = 1, .whole = true, .text = "0 or 1, below lock_steps"};
}  // namespace option_ranges

// X(type, name, default, paper, range, help)
#define GNMR_OPTIONS(X)                                                                                              \
  X(double, beta, 0.9, 0.9, kDecay, "decay of the historical mean")                                                  \
  X(double, tau, 2.0, 2.0, kAtLeastOne, "GNMR above this is a risk")                                                 \
  X(double, delta_tau, 0.5, 0.5, kThreshold, "Delta-GNMR above this is a risk")                                      \
  X(double, fall_tau, 0.7, 0.0, kZeroOrThreshold, "Fall-GNMR above this is a risk; 0: off")                          \
  X(double, baseline, 1.0, 0.0, kUnitInterval,                                                                       \
    "a rise or fall is measured from no lower than this, so that a return to the usual is neither")                  \
  X(std::int32_t, window, 5, 5, kWindow, "samples that Delta-GNMR and Fall-GNMR look back")                          \
  X(double, noise_factor, 8.0, 0.0, kNotNegative,                                                                    \
    "thresholds are at least this many times the unit's own usual change; 0: fixed thresholds")                      \
  X(double, noise_beta, 0.98, 0.98, kDecay, "decay of that usual change")                                            \
  X(double, mean_cap, 2.0, 0.0, kZeroOrAboveOne,                                                                     \
    "robust history: after warm-up a sample enters the mean as at most this many times, and at least this fraction " \
    "of, the mean, and what is at risk is not kept as usual; 0: plain history")                                      \
  X(std::int32_t, warmup_samples, 20, 20, kWholeFromOne, "samples a unit must have had before it can be a risk")     \
  X(double, common_share, 0.9, 1.0, kShare,                                                                          \
    "when a larger share of the units is at risk, the cause is common (data, learning rate) and nothing is "         \
    "admitted; 1: off")                                                                                              \
  X(std::int32_t, lock_steps, 10, 10, kWholeFromOne, "steps that a recovery lasts")                                  \
  X(std::int32_t, max_lock_steps, 160, 0, kWholeFromZero,                                                            \
    "a unit that relapses is locked twice as long as the last time, and one that has no sample in its lock waits "   \
    "for one, up to this; 0: always lock_steps")                                                                     \
  X(std::int32_t, cooldown_steps, 50, 0, kWholeFromZero,                                                             \
    "steps for which a unit is no candidate after a recovery that did not help")                                     \
  X(double, max_o, 0.01, 0.01, kBudget, "units in recovery at one time")                                             \
  X(double, max_cost, 1.0, 1.0, kShare, "share of the total cost in recovery at one time")                           \
  X(std::int32_t, group_max, 0, 0, kWholeFromZero, "units in recovery at one time in one group; 0: no limit")        \
  X(double, max_high_share, 1.0, 1.0, kShare,                                                                        \
    "share of the total cost in high precision over time, recoveries and reruns together; 1: no limit")              \
  X(std::int32_t, lag, 0, 0, kLag, "the decision of step t holds in step t+1+lag")                                   \
  X(Selector, selector, Selector::automatic, Selector::norms, kSelectorRange,                                        \
    "who says which units go to recovery; auto: trial where the backend can run a step again, else norms")           \
  X(Guard, guard, Guard::none, Guard::none, kGuardRange,                                                             \
    "what protects the update of an alarmed step that has no trial")                                                 \
  X(std::int32_t, max_trials, 20, 0, kTrials, "reruns in any hundred consecutive steps, spread over them")           \
  X(double, error_factor, 4.0, 4.0, kAtLeastOne, "an error above this many times the usual is an outlier")           \
  X(double, error_floor, 0.1, 0.1, kNotNegative, "an error below this is never one")                                 \
  X(double, error_ceiling, 4.0, 4.0, kZeroOrAtLeastOne,                                                              \
    "an error above this many times the format's own always is (but for error_floor); 0: no such limit")             \
  X(double, error_beta, 0.98, 0.98, kDecay, "decay of the usual error")                                              \
  X(std::int32_t, error_warmup, 10, 10, kWholeFromOne,                                                               \
    "errors that a site must have had before its own mean is its usual one")                                         \
  X(double, coarse_error, 0.2, 0.0, kNotNegative,                                                                    \
    "a unit whose error is always above this, and far above that of others, is in standing recovery; 0: off")        \
  X(double, coarse_factor, 2.0, 2.0, kAtLeastOne, "far above: this many times the median of all units")              \
  X(double, coarse_fill, 0.2, 0.0, kNotNegative,                                                                     \
    "where there is such a unit, others whose error is always above this fill the rest of the budget; 0: off")

/// All options with the values of the preset `default`.
struct Options {
#define GNMR_DECLARE(type, name, default_value, paper_value, range, help) type name = default_value;
  GNMR_OPTIONS(GNMR_DECLARE)
#undef GNMR_DECLARE

  /// The preset of that name (`default` or `paper`); an `Error` for any other.
  static Options preset(std::string_view name);

  bool operator==(const Options&) const = default;
};

/// What is known of one option besides its value.
struct OptionSpec {
  std::string_view name;
  double default_value;
  double paper_value;
  OptionRange range;
  std::string_view help;
  double (*get)(const Options&);
  void (*set_unchecked)(Options&, double);

  /// Whether its value is a word.
  bool is_word() const { return !range.words.empty(); }

  /// The word of a value in range; only where `is_word`.
  std::string_view word_of(double value) const { return range.words[static_cast<std::size_t>(value)]; }
};

/// How many options there are.
inline constexpr std::size_t kOptionCount = 0
#define GNMR_COUNT(type, name, default_value, paper_value, range, help) +1
    GNMR_OPTIONS(GNMR_COUNT)
#undef GNMR_COUNT
    ;

/// Every option, in the order of the declaration.
const std::array<OptionSpec, kOptionCount>& option_specs();

/// The option of that name; null where there is none.
const OptionSpec* find_option(std::string_view name);

/// The names of the presets, the default one first.
inline constexpr std::array<std::string_view, 2> kPresetNames{"default", "paper"};

/// Sets one option by name; an `Error` that names it where it is unknown or `value` is out of range.
void set_option(Options& options, std::string_view name, double value);

/// Sets one option whose value is a word; an `Error` that names it where it is unknown, a number, or has no such word.
void set_option(Options& options, std::string_view name, std::string_view word);

/// Checks every option and what they must be together; throws `Error` naming the first that is wrong.
void validate(const Options& options);

}  // namespace gnmr
