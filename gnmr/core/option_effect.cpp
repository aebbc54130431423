// SPDX-License-Identifier: Apache-2.0
// Which options have an effect: section "Options without effect" of docs/algorithm.md.
#include <string>
#include <string_view>

#include "gnmr/core/controller.h"
#include "gnmr/core/error.h"
#include "gnmr/core/selection.h"

namespace gnmr {
namespace {

std::string why_reruns_have_none(const Options& options, const Backend& backend) {
  if (options.max_trials == 0) return {};
  if (!backend.can_rerun) return "no step can run again here";
  const bool can_ask =
      selector_in_force(options, backend) == Selector::trial || guard_in_force(options, backend) == Guard::replay;
  return can_ask ? "" : "neither the selector `trial` nor the guard `replay` is in force";
}

std::string why_errors_have_none(const Options& options, const Backend& backend) {
  if (backend.sites == 0) return "errors of low paths are not measured here";
  return selector_in_force(options, backend) == Selector::norms ? "the selector is `norms`" : "";
}

}  // namespace

std::string why_without_effect(std::string_view option, const Options& options, const Backend& backend) {
  if (option == "selector") {
    const bool by_norms = options.selector == Selector::automatic || options.selector == Selector::norms;
    return backend.sites == 0 && !by_norms ? "errors of low paths are not measured here" : "";
  }
  if (option == "guard") {
    return !backend.can_hold && options.guard != Guard::none ? "updates cannot be held or scaled here" : "";
  }
  if (option == "max_trials") return why_reruns_have_none(options, backend);
  if (option.starts_with("error_")) return why_errors_have_none(options, backend);
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
