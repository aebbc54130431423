// SPDX-License-Identifier: Apache-2.0
// The exception type of the library, and its one special case.
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

/// Something that could not be written: the disk is full, read-only or gone, or permission is missing. The input was
/// fine, so the same call can work later.
class OutputError : public Error {
 public:
  using Error::Error;
};

}  // namespace gnmr
