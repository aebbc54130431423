// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "gnmr/messages.h"

namespace gnmr::app {
namespace {

constexpr std::size_t kColumnGap = 2;  // blanks from one column to the next
constexpr const char* kNothing = "-";

std::string text_at(const lab::SummaryRow& row, const std::string& key) {
  const auto found = row.cells.find(key);
  return found == row.cells.end() ? kNothing : printable(found->second.text);
}

/// Whether a byte goes on with a character of UTF-8: 10xxxxxx.
bool goes_on(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

struct Layout {
  const lab::SummaryColumn* column;
  std::size_t width;
};

std::string block_text(const lab::Summary& summary, const std::vector<Layout>& columns, std::size_t name_width) {
  std::string text = pad_right("", name_width);
  for (const Layout& layout : columns) {
    text += std::string(kColumnGap, ' ') + pad_left(layout.column->title, layout.width);
  }
  text += '\n';
  for (const lab::SummaryRow& row : summary.rows) {
    text += pad_right(printable(row.label), name_width);
    for (const Layout& layout : columns) {
      text += std::string(kColumnGap, ' ') + pad_left(text_at(row, layout.column->key), layout.width);
    }
    text += '\n';
  }
  return text;
}

}  // namespace

std::size_t shown_width(std::string_view text) {
  return text.size() - static_cast<std::size_t>(std::count_if(text.begin(), text.end(), goes_on));
}

std::string cut_to(std::string text, std::size_t width) {
  std::size_t shown = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (goes_on(text[at])) continue;
    if (shown++ == width) {
      text.resize(at);
      break;
    }
  }
  return text;
}

std::string pad_right(std::string text, std::size_t width) {
  const std::size_t shown = shown_width(text);
  if (shown < width) text.append(width - shown, ' ');
  return text;
}

std::string pad_left(std::string text, std::size_t width) {
  const std::size_t shown = shown_width(text);
  if (shown < width) text.insert(0, width - shown, ' ');
  return text;
}

std::string table_text(const lab::Summary& summary, std::size_t columns) {
  std::size_t name_width = 0;
  for (const lab::SummaryRow& row : summary.rows) name_width = std::max(name_width, shown_width(row.label));
  std::string text;
  std::vector<Layout> block;
  std::size_t used = name_width;
  for (const lab::SummaryColumn& column : summary.columns) {
    std::size_t width = shown_width(column.title);
    for (const lab::SummaryRow& row : summary.rows) width = std::max(width, shown_width(text_at(row, column.key)));
    if (!block.empty() && used + kColumnGap + width > columns) {
      text += block_text(summary, block, name_width) + "\n";
      block.clear();
      used = name_width;
    }
    block.push_back({&column, width});
    used += kColumnGap + width;
  }
  if (!block.empty()) text += block_text(summary, block, name_width);
  for (const std::string& note : summary.notes) text += printable(note) + "\n";
  return text;
}

}  // namespace gnmr::app
