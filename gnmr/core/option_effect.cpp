// SPDX-License-Identifier: Apache-2.0
// Which options have an effect: section "Options without effect" of docs/algorithm.md.
#include <algorithm>
#include <string>
#include <string_view>

#include "gnmr/core/controller.h"
#include "gnmr/core/error.h"
#include "gnmr/core/selection.h"

namespace gnmr {
namespace {

// A hundred steps of a smaller share do not pay for one with all units high.
constexpr double kLowestShareWithReruns = 0.01;

std::string why_reruns_have_none(const Options& options, const Backend& backend) {
  if (options.max_trials == 0) return {};
  if (options.max_high_share < kLowestShareWithReruns) return "max_high_share is below 0.01, which pays for no rerun";
  if (!backend.can_rerun) return "no step can run again here";
  const bool can_ask =
      selector_in_force(options, backend) == Selector::trial || guard_in_force(options, backend) == Guard::replay;
  return can_ask ? "" : "neither the selector `trial` nor the guard `replay` is in force";
}

std::string why_guard_has_none(const Options& options, const Backend& backend) {
  if (options.guard == Guard::none) return {};
  if (!backend.can_hold) return "updates cannot be held or scaled here";
  const bool is_idle = options.guard == Guard::replay && selector_in_force(options, backend) == Selector::trial;
  return is_idle ? "a guard `replay` does nothing with the selector `trial`" : "";
}

std::string why_levels_have_none(std::string_view option, const Options& options, const Backend& backend) {
  if (options.coarse_error == 0) return option == "coarse_error" ? "" : "coarse_error is 0";
  return backend.sites == 0 ? "errors of low paths are not measured here" : "";
}

bool knows_expected_errors(const Backend& backend) {
  return std::any_of(backend.expected_errors.begin(), backend.expected_errors.end(),
                     [](double error) { return error > 0; });
}

std::string why_errors_have_none(std::string_view option, const Options& options, const Backend& backend) {
  if (backend.sites == 0) return "errors of low paths are not measured here";
  if (selector_in_force(options, backend) == Selector::norms) return "the selector is `norms`";
  const bool is_idle_ceiling =
      option == "error_ceiling" && options.error_ceiling > 0 && !knows_expected_errors(backend);
  return is_idle_ceiling ? "the errors of the formats themselves are not known" : "";
}

}  // namespace

std::string why_without_effect(std::string_view option, const Options& options, const Backend& backend) {
  if (option == "selector") {
    const bool by_norms = options.selector == Selector::automatic || options.selector == Selector::norms;
    return backend.sites == 0 && !by_norms ? "errors of low paths are not measured here" : "";
  }
  if (option == "guard") return why_guard_has_none(options, backend);
  if (option == "max_trials") return why_reruns_have_none(options, backend);
  if (option.starts_with("error_")) return why_errors_have_none(option, options, backend);
  if (option.starts_with("coarse_")) return why_levels_have_none(option, options, backend);
  if (option == "noise_beta" && options.noise_factor == 0) return "noise_factor is 0";
  return {};
}

void refuse_without_effect(const Options& options, const Backend& backend, std::span<const std::string> named) {
  for (const std::string& option : named) {
    const std::string why = why_without_effect(option, options, backend);
    if (!why.empty()) throw Error("option `" + option + "`: has no effect, since " + why + "; leave it out");
  }
}

}  // namespace gnmr
