// SPDX-License-Identifier: Apache-2.0
// The one exception type of the library.
//
// Two kinds of errors:
// - Recoverable: the caller handed in something that cannot be used (279 norms for 280 units, a negative norm, an
//   option out of range, a corrupt file). `Error` is thrown, its text says what was expected and what came, and the
//   object on which the call was made is as it was before.
// - Broken invariants: a bug in this library. They are asserted in debug and sanitizer builds.
//
// NaN, infinity and zero in gradients are data, never errors.
#pragma once

#include <stdexcept>
#include <string>

namespace gnmr {

/// Something the caller can mend; nothing has changed.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace gnmr
