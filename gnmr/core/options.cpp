// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/options.h"

#include <algorithm>
#include <cmath>

#include "gnmr/core/error.h"
#include "gnmr/core/message_text.h"

namespace gnmr {
namespace {

const OptionSpec& known(std::string_view name) {
  const OptionSpec* spec = find_option(name);
  if (spec == nullptr) {
    throw Error("unknown option `" + std::string(name) + "`" +
                did_you_mean(name, option_specs(), [](const OptionSpec& one) { return one.name; }));
  }
  return *spec;
}

[[noreturn]] void throw_out_of_range(const OptionSpec& spec, const std::string& got) {
  throw Error("option `" + std::string(spec.name) + "`: expected " + spec.range.description() + ", got " + got);
}

}  // namespace

bool OptionRange::contains(double value) const {
  if (!std::isfinite(value)) return false;
  const bool is_whole = value == std::floor(value);
  if (!words.empty()) return is_whole && value >= 0 && value < static_cast<double>(words.size());
  if (whole && !is_whole) return false;
  if (whole_from_one && value >= 1 && !is_whole) return false;
  if (or_zero && value == 0) return true;
  const bool above_low = low_open ? value > low : value >= low;
  const bool below_high = high_open ? value < high : value <= high;
  return above_low && below_high;
}

std::string OptionRange::description() const {
  if (words.empty()) return text;
  std::string list;
  for (const std::string_view word : words) {
    list += list.empty() ? "one of " : ", ";
    list += word;
  }
  return list;
}

const std::array<OptionSpec, kOptionCount>& option_specs() {
  using namespace option_ranges;
  static constexpr std::array<OptionSpec, kOptionCount> kSpecs{{
#define GNMR_DESCRIBE(type, name, default_value, paper_value, range, help)                       \
  OptionSpec{#name,                                                                              \
             static_cast<double>(default_value),                                                 \
             static_cast<double>(paper_value),                                                   \
             range,                                                                              \
             help,                                                                               \
             [](const Options& options) -> double { return static_cast<double>(options.name); }, \
             [](Options& options, double value) { options.name = static_cast<type>(value); }},
      GNMR_OPTIONS(GNMR_DESCRIBE)
#undef GNMR_DESCRIBE
  }};
  return kSpecs;
}

const OptionSpec* find_option(std::string_view name) {
  for (const OptionSpec& spec : option_specs()) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

Options Options::preset(std::string_view name) {
  Options options;
  if (name == kPresetNames[0]) return options;
  if (name == kPresetNames[1]) {
    for (const OptionSpec& spec : option_specs()) spec.set_unchecked(options, spec.paper_value);
    return options;
  }
  throw Error("preset: expected `default` or `paper`, got `" + std::string(name) + "`" +
              did_you_mean(name, kPresetNames));
}

void set_option(Options& options, std::string_view name, double value) {
  const OptionSpec& spec = known(name);
  if (!spec.range.contains(value)) throw_out_of_range(spec, shortest_text(value));
  // Minus zero is in range wherever zero is; it is stored as plain zero so that equal options look equal.
  spec.set_unchecked(options, value == 0 ? 0.0 : value);
}

void set_option(Options& options, std::string_view name, std::string_view word) {
  const OptionSpec& spec = known(name);
  const auto found = std::find(spec.range.words.begin(), spec.range.words.end(), word);
  if (found == spec.range.words.end()) {
    throw_out_of_range(spec, "`" + std::string(word) + "`" + did_you_mean(word, spec.range.words));
  }
  spec.set_unchecked(options, static_cast<double>(found - spec.range.words.begin()));
}

void validate(const Options& options) {
  for (const OptionSpec& spec : option_specs()) {
    const double value = spec.get(options);
    if (!spec.range.contains(value)) throw_out_of_range(spec, shortest_text(value));
  }
  if (options.lag >= options.lock_steps) {
    throw Error("option `lag`: expected below lock_steps (" + std::to_string(options.lock_steps) + "), got " +
                std::to_string(options.lag));
  }
}

}  // namespace gnmr
