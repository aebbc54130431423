// SPDX-License-Identifier: Apache-2.0
// A suite's table for a terminal or a log.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "gnmr/lab/summary.h"

namespace gnmr::app {

/// How many columns a UTF-8 text takes, where every character takes one.
std::size_t shown_width(std::string_view text);

/// `text` without what goes beyond a width.
std::string cut_to(std::string text, std::size_t width);

/// `text` with blanks behind it, or in front of it, up to a width.
std::string pad_right(std::string text, std::size_t width);
std::string pad_left(std::string text, std::size_t width);

/// The table, aligned, each line at most `columns` wide where that can be: what does not fit beside follows below, with
/// the arms' names again. Notes come last.
std::string table_text(const lab::Summary& summary, std::size_t columns);

}  // namespace gnmr::app
