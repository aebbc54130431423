// SPDX-License-Identifier: Apache-2.0
// JSON as logs hold it, given out as fields with their paths.
//
// Goals: what Python writes (bare NaN, Infinity and -Infinity included); one pass without a document in memory; no
// recursion, so no input can exhaust the stack.
// Non-goals: refusing every text that a strict reader refuses (a lone surrogate or `01` passes), writing.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "gnmr/core/error.h"

namespace gnmr::io {

/// A value that is neither object nor array; its views are valid during the call that gets it.
struct JsonScalar {
  enum class Kind { number, text, null, boolean };
  Kind kind = Kind::null;
  std::string_view text = {};  // a number as written, or a decoded string
  double number = 0;

  /// Whether it is a number, or a string that holds one such as "NaN"; `value` gets it.
  bool as_number(double& value) const;
};

/// Called for the parts of a JSON text as it is read.
class JsonSink {
 public:
  virtual ~JsonSink() = default;

  /// A value with its path: keys and array indices joined by dots, as in `log_history.3.loss`.
  virtual void scalar(std::string_view path, const JsonScalar& value) = 0;

  /// The object at `path` is complete.
  virtual void object_end(std::string_view path) { static_cast<void>(path); }
};

/// A text that is not JSON.
class JsonError : public Error {
 public:
  JsonError(const std::string& what, std::size_t offset) : Error(what), offset_(offset) {}

  /// The byte at which that was seen.
  std::size_t offset() const { return offset_; }

 private:
  std::size_t offset_;
};

/// Reads one JSON text, all of `text`; throws `JsonError`.
void scan_json(std::string_view text, JsonSink& sink);

}  // namespace gnmr::io
