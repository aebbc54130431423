// SPDX-License-Identifier: Apache-2.0
// Which of a log's fields are gradient norms, and which fields it has at all.
//
// Goals: one rule for every log that names its fields; a message that helps where no field fits.
// Non-goals: regular expressions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "gnmr/core/error.h"

namespace gnmr::io {

/// Finds gradient norms, and leaves out what has nearly the same name: norms after clipping, limits, L1 norms, the
/// copies that Megatron writes against the number of samples.
inline constexpr std::string_view kDefaultFieldPattern =
    "*grad*norm*,norms.*,*l2_norm/grad/*,!*l1_norm*,!* vs "
    "samples,!*max_grad_norm*,!*clip_grad*,!*grad_clip*,!*norm_clip*,!*clipped*";

/// Globs with `*` and `?` separated by commas, upper and lower case alike; `!` before one excludes.
class FieldPattern {
 public:
  /// An empty pattern is the default one.
  explicit FieldPattern(std::string_view globs);

  /// Whether some glob fits all of `name` and none that excludes does.
  bool matches(std::string_view name) const;

  /// Whether it is the default pattern.
  bool is_default() const { return is_default_; }

  /// The globs as given.
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  bool is_default_;
  std::vector<std::string> wanted_;
  std::vector<std::string> excluded_;
};

/// The first few different names that a log was seen to have.
class FieldNames {
 public:
  /// Notes a name; cheap once enough are known.
  void add(std::string_view name);

  /// `a, b, c` with a hint where there are more; `nothing that we can read` where there are none.
  std::string list() const;

 private:
  std::vector<std::string> names_;
  bool more_ = false;
};

/// A log without gradient norms.
class NoNormsError : public Error {
 public:
  using Error::Error;
};

/// The error for a log without gradient norms; `kind` is what the log is, as in `this Megatron log`.
NoNormsError no_norms_error(std::string_view file, std::string_view kind, const FieldNames& fields);

/// The same where a pattern chose the fields; `hint`, where there is one, says how the norms get into such a log.
NoNormsError no_norms_error(std::string_view file, std::string_view kind, const FieldNames& fields,
                            const FieldPattern& pattern, std::string_view hint = {});

/// Whether `name` is what libraries call the norm of the whole model where they log norms of its parts too.
bool is_total_norm(std::string_view name);

/// The names under which logs keep the number of the step, most usual first.
const std::vector<std::string>& usual_step_fields();

/// An `Error` with `where` where `value` is a negative norm.
void check_norm(double value, std::string_view where);

}  // namespace gnmr::io
