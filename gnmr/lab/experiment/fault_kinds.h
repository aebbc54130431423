// SPDX-License-Identifier: Apache-2.0
// The kinds of faults that a laboratory can inject, by the names that people type: `saturate`, `saturate:once`.
//
// GNMR_FAULT_KINDS is the only list: kind, name, site. docs/faults.md says what each does.
//
// Goals: settings can be checked, and help printed, where there is no torch and no injector. Non-goals: what a fault
// does, and when (gnmr/lab/injection).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace gnmr::lab {

/// Where a fault is: what it changes before, in or after the cast of a low path, or the run itself.
enum class FaultSite : std::uint8_t { before_cast, cast, after_cast, run };

// X(kind, name, site)
#define GNMR_FAULT_KINDS(X)                           \
  X(input_bad, "input-bad", before_cast)              \
  X(saturate, "saturate", cast)                       \
  X(overflow, "overflow", cast)                       \
  X(gradient_overflow, "gradient-overflow", cast)     \
  X(stale_scale, "stale-scale", cast)                 \
  X(stuck_amax, "stuck-amax", cast)                   \
  X(flush, "flush", cast)                             \
  X(drift, "drift", cast)                             \
  X(cached_weight, "cached-weight", cast)             \
  X(missed_amax, "missed-amax", cast)                 \
  X(wrong_amax, "wrong-amax", cast)                   \
  X(bit_flip, "bit-flip", after_cast)                 \
  X(wrong_rows, "wrong-rows", after_cast)             \
  X(nan_gradient, "nan-gradient", after_cast)         \
  X(forward_overflow, "forward-overflow", after_cast) \
  X(bad_batch, "bad-batch", run)

/// What can go wrong.
enum class FaultKind : std::uint8_t {
#define GNMR_FAULT_ENUMERATOR(kind, name, site) kind,
  GNMR_FAULT_KINDS(GNMR_FAULT_ENUMERATOR)
#undef GNMR_FAULT_ENUMERATOR
};

// All names, a blank before each: for a help text.
#define GNMR_FAULT_NAME(kind, name, site) " " name
#define GNMR_FAULT_NAMES GNMR_FAULT_KINDS(GNMR_FAULT_NAME)

/// What is known of a kind.
struct FaultKindSpec {
  FaultKind kind;
  std::string_view name;
  FaultSite site;
};

/// Every kind, in the order of the declaration, which is that of the enumerators.
std::span<const FaultKindSpec> fault_kinds();

/// The name of a kind, as it is typed.
std::string_view to_string(FaultKind kind);

/// `"before-cast"`, `"cast"`, `"after-cast"` or `"run"`.
std::string_view to_string(FaultSite site);

/// Where a kind acts.
FaultSite site_of(FaultKind kind);

/// Whether a kind re-enacts a bug that other training code has had: it begins once in a run, and stays to its end.
bool is_reenacted_bug(FaultKind kind);

/// Whether the harm of a kind in one step can be measured: not of what is wrong in the amax history, which was made in
/// earlier steps.
bool has_measurable_harm(FaultKind kind);

/// A kind as one asks for it.
struct FaultChoice {
  FaultKind kind = FaultKind::saturate;
  bool transient = false;  // `:once`: in one step, and gone when that step is run again

  bool operator==(const FaultChoice&) const = default;
};

/// Reads `NAME` or `NAME:once`; nothing where there is no such kind, or none that can be gone in a rerun: a bad batch
/// is as bad the second time, and a bug stays.
std::optional<FaultChoice> parse_fault(std::string_view text);

/// What `parse_fault` takes, for a message: `one of input-bad, ... (these also with :once), cached-weight, ...`.
std::string expected_fault();

}  // namespace gnmr::lab
