// SPDX-License-Identifier: Apache-2.0
// Names that fit a pattern.
//
// Goals: one matcher for fields of logs and for units, linear in practice. Non-goals: regular expressions, sets of
// characters, paths.
#pragma once

#include <string_view>

namespace gnmr::io {

/// Whether all of `name` fits `glob`: `*` is any text, `?` any one byte, letters fit in upper and lower case alike.
bool glob_matches(std::string_view glob, std::string_view name);

}  // namespace gnmr::io
