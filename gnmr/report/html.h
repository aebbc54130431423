// SPDX-License-Identifier: Apache-2.0
// Pieces of HTML. Text from files goes through `escaped` and nowhere else.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gnmr::report {

/// `text` as character data or as the value of an attribute in double quotes; what is no UTF-8 and what a screen would
/// obey becomes U+FFFD.
std::string escaped(std::string_view text);

/// A paragraph.
std::string paragraph(std::string_view text, std::string_view css_class = {});

/// A list with an entry a text; nothing where there is none.
std::string bullet_list(const std::vector<std::string>& texts, std::string_view css_class = {});

/// A table that scrolls within its own box.
class Table {
 public:
  /// `caption` names the table for those who cannot see it.
  explicit Table(std::string_view caption);

  /// A column; numbers stand to the right. `help` is shown where the pointer rests.
  void column(std::string_view title, bool is_number = false, std::string_view help = {});

  /// The first cell names the row. An empty cell becomes a dash.
  void row(const std::vector<std::string>& cells);

  /// The whole table.
  std::string html() const;

 private:
  std::string caption_;
  std::string head_;
  std::string rows_;
  std::vector<bool> is_number_;
};

/// An entry of a legend: how it is drawn (a CSS class) and what it means.
using LegendEntry = std::pair<std::string, std::string>;

/// Keys and their meaning, which wrap where the screen is narrow.
std::string legend(const std::vector<LegendEntry>& entries);

/// The colour of a line, such as an arm's, as a CSS class.
std::string line_class(std::size_t line);

/// The colours of a heat map of ratios, and of one of errors, with their numbers.
std::string heat_scale();
std::string error_scale();

}  // namespace gnmr::report
