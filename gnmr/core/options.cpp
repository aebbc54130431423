// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/options.h"

#include <charconv>
#include <cmath>

#include "gnmr/core/error.h"

namespace gnmr {
namespace {

const OptionSpec* find_spec(std::string_view name) {
  for (const OptionSpec& spec : option_specs()) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

[[noreturn]] void throw_out_of_range(const OptionSpec& spec, double value) {
  char shown[64];
  const std::to_chars_result end = std::to_chars(shown, shown + sizeof shown, value);
  throw Error("option `" + std::string(spec.name) + "`: expected " + spec.range.text + ", got " +
              std::string(shown, end.ptr));
}

}  // namespace

bool OptionRange::contains(double value) const {
  if (!std::isfinite(value)) return false;
  const bool is_whole = value == std::floor(value);
  if (whole && !is_whole) return false;
  if (whole_from_one && value >= 1 && !is_whole) return false;
  if (or_zero && value == 0) return true;
  const bool above_low = low_open ? value > low : value >= low;
  const bool below_high = high_open ? value < high : value <= high;
  return above_low && below_high;
}

const std::array<OptionSpec, kOptionCount>& option_specs() {
  using namespace option_ranges;
  static constexpr std::array<OptionSpec, kOptionCount> kSpecs{{
#define GNMR_DESCRIBE(type, name, default_value, paper_value, range, help)                       \
  OptionSpec{#name,                                                                              \
             default_value,                                                                      \
             paper_value,                                                                        \
             range,                                                                              \
             help,                                                                               \
             [](const Options& options) -> double { return static_cast<double>(options.name); }, \
             [](Options& options, double value) { options.name = static_cast<type>(value); }},
      GNMR_OPTIONS(GNMR_DESCRIBE)
#undef GNMR_DESCRIBE
  }};
  return kSpecs;
}

Options Options::preset(std::string_view name) {
  Options options;
  if (name == kPresetNames[0]) return options;
  if (name == kPresetNames[1]) {
    for (const OptionSpec& spec : option_specs()) spec.set_unchecked(options, spec.paper_value);
    return options;
  }
  throw Error("preset: expected `default` or `paper`, got `" + std::string(name) + "`");
}

void set_option(Options& options, std::string_view name, double value) {
  const OptionSpec* spec = find_spec(name);
  if (spec == nullptr) throw Error("unknown option `" + std::string(name) + "`");
  if (!spec->range.contains(value)) throw_out_of_range(*spec, value);
  // Minus zero is in range wherever zero is; it is stored as plain zero so that equal options look equal.
  spec->set_unchecked(options, value == 0 ? 0.0 : value);
}

void validate(const Options& options) {
  for (const OptionSpec& spec : option_specs()) {
    const double value = spec.get(options);
    if (!spec.range.contains(value)) throw_out_of_range(spec, value);
  }
  if (options.lag >= options.lock_steps) {
    throw Error("option `lag`: expected below lock_steps (" + std::to_string(options.lock_steps) + "), got " +
                std::to_string(options.lag));
  }
}

}  // namespace gnmr
