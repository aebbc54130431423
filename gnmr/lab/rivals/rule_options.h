// SPDX-License-Identifier: Apache-2.0
// The rules that GNMR is compared with and their parameters, each declared once.
//
// A rule is asked for as `zclip` or `zclip:z=3,alpha=0.97`. Defaults are the published ones; docs/rivals.md says where.
//
// Goals: structs, texts, ranges, help and the tables of docs/rivals.md derived from one list; a text can be checked
// where there is no torch. Non-goals: what the rules do (zclip.h, adagc.h, stable_spam.h, olmo_skip.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace gnmr::lab {

/// To which norm ZClip brings a spike.
enum class ZClipTo { reciprocal, mean, max };

// X(type, name, default, lowest, limit, help): lowest <= value < limit
#define GNMR_ZCLIP_OPTIONS(X)                                                                               \
  X(double, alpha, 0.97, 0, 1, "Share that the running mean and variance keep in a step")                   \
  X(double, z, 2.5, 0, 1e6, "Standard deviations above the mean from which on a norm is a spike")           \
  X(std::int64_t, warmup, 25, 1, 1e9, "Steps whose norms make the first mean and variance")                 \
  X(double, max_norm, 1.0, 0, 1e9, "Largest norm in any case; 0: none")                                     \
  X(ZClipTo, clip_to, ZClipTo::reciprocal, 0, 0,                                                            \
    "What a spike is clipped to: reciprocal (mean + z^2 / its z-score deviations), mean, or max (mean + z " \
    "deviations)")

#define GNMR_ADAGC_OPTIONS(X)                                                                    \
  X(double, lambda_rel, 1.05, 1, 1e6, "Largest norm of a tensor, in its own running norms")      \
  X(double, beta, 0.98, 0, 1, "Share that the running norm keeps in a step")                     \
  X(std::int64_t, warmup, 100, 0, 1e9, "Steps with global clipping, whose smallest norms begin") \
  X(double, lambda_abs, 1.0, 1e-9, 1e9, "Largest norm of all gradients in the warm-up")

#define GNMR_STABLE_SPAM_OPTIONS(X)                                                         \
  X(double, gamma1, 0.7, 0, 1, "Share that the running norm of a tensor keeps in a step")   \
  X(double, gamma2, 0.9, 0, 1, "Share that the running square of its norm keeps in a step") \
  X(double, gamma3, 0.999, 0, 1, "Share that the running largest element keeps in a step")

#define GNMR_OLMO_SKIP_OPTIONS(X)                                                    \
  X(std::int64_t, window, 128, 6, 1e6, "Earlier steps that a step is compared with") \
  X(double, sigma, 6, 0, 1e6, "Standard deviations above their mean from which on an update is left out")

#define GNMR_DECLARE(type, name, default_value, lowest, limit, help) type name = default_value;

/// ZClip, arXiv 2504.02507.
struct ZClipOptions {
  static constexpr std::string_view kRule = "zclip";
  GNMR_ZCLIP_OPTIONS(GNMR_DECLARE)
  bool operator==(const ZClipOptions&) const = default;
};

/// AdaGC, arXiv 2502.11034.
struct AdaGcOptions {
  static constexpr std::string_view kRule = "adagc";
  GNMR_ADAGC_OPTIONS(GNMR_DECLARE)
  bool operator==(const AdaGcOptions&) const = default;
};

/// What Stable-SPAM does to gradients, arXiv 2502.17055.
struct StableSpamOptions {
  static constexpr std::string_view kRule = "stable-spam";
  GNMR_STABLE_SPAM_OPTIONS(GNMR_DECLARE)
  bool operator==(const StableSpamOptions&) const = default;
};

/// OLMo-core's optimizers that skip steps.
struct OlmoSkipOptions {
  static constexpr std::string_view kRule = "olmo-skip";
  GNMR_OLMO_SKIP_OPTIONS(GNMR_DECLARE)
  bool operator==(const OlmoSkipOptions&) const = default;
};
#undef GNMR_DECLARE

/// Which rule, with which parameters.
using RuleOptions = std::variant<ZClipOptions, AdaGcOptions, StableSpamOptions, OlmoSkipOptions>;

/// Reads `NAME` or `NAME:PARAMETER=VALUE,...`; an `Error` says what is wrong and lists all rules with their parameters.
RuleOptions parse_rule(std::string_view text);

/// The names of all rules.
std::vector<std::string_view> rule_names();

/// One rule with all its parameters, as `parse_rule` reads it.
std::string rule_text(const RuleOptions& options);

/// One rule's parameters as a list in Markdown, for docs/rivals.md.
std::string rule_markdown(std::string_view name);

}  // namespace gnmr::lab
