// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/log_fields.h"

#include <algorithm>

#include "gnmr/io/glob.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/number_text.h"
#include "gnmr/io/text_error.h"

namespace gnmr::io {
namespace {

constexpr std::size_t kNamesInMessage = 16;

}  // namespace

FieldPattern::FieldPattern(std::string_view globs) : text_(globs), is_default_(globs.empty()) {
  if (is_default_) text_ = kDefaultFieldPattern;
  std::string_view rest = text_;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    std::string_view glob = trim_blanks(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const bool excludes = glob.starts_with('!');
    if (excludes) glob.remove_prefix(1);
    if (!glob.empty()) (excludes ? excluded_ : wanted_).emplace_back(glob);
  }
  if (wanted_.empty()) throw Error("the field pattern " + in_quotes(globs) + " can fit no field");
}

bool FieldPattern::matches(std::string_view name) const {
  const auto fits = [&](const std::string& glob) { return glob_matches(glob, name); };
  return std::any_of(wanted_.begin(), wanted_.end(), fits) && std::none_of(excluded_.begin(), excluded_.end(), fits);
}

void FieldNames::add(std::string_view name) {
  if (more_ || name.empty() || std::find(names_.begin(), names_.end(), name) != names_.end()) return;
  if (names_.size() == kNamesInMessage) {
    more_ = true;
  } else {
    names_.emplace_back(name);
  }
}

std::string FieldNames::list() const {
  if (names_.empty()) return "nothing that we can read";
  std::string text;
  for (const std::string& name : names_) {
    if (!text.empty()) text += ", ";
    const std::string shown = in_quotes(name);
    text += shown.substr(1, shown.size() - 2);
  }
  return more_ ? text + " and more" : text;
}

NoNormsError no_norms_error(std::string_view file, std::string_view kind, const FieldNames& fields) {
  return NoNormsError(std::string(file) + ": no gradient norms in " + std::string(kind) + "; it has: " + fields.list());
}

NoNormsError no_norms_error(std::string_view file, std::string_view kind, const FieldNames& fields,
                            const FieldPattern& pattern, std::string_view hint) {
  if (pattern.is_default()) {
    const std::string what = no_norms_error(file, kind, fields).what();
    return NoNormsError(hint.empty() ? what : what + ". " + std::string(hint));
  }
  return NoNormsError(std::string(file) + ": no number in " + std::string(kind) + " fits the field pattern " +
                      in_quotes(pattern.text()) + "; it has: " + fields.list());
}

bool is_total_norm(std::string_view name) {
  return name.ends_with("l2_norm/grad/global") || name.ends_with("_norm_total");
}

const std::vector<std::string>& usual_step_fields() {
  static const std::vector<std::string> names{"step",       "global_step",         "_step",     "train/global_step",
                                              "train/step", "trainer/global_step", "iteration", "iter"};
  return names;
}

void check_norm(double value, std::string_view where) {
  if (!(value < 0)) return;
  std::string text;
  append_number(text, value);
  throw error_at(where, "the norm " + text + " is negative");
}

}  // namespace gnmr::io
