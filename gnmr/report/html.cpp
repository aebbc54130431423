// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/html.h"

#include <array>

#include "gnmr/io/json_text.h"

namespace gnmr::report {
namespace {

// As many as web/style.css has.
constexpr std::size_t kLineColours = 8;
constexpr std::size_t kHeatColours = 13;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// Colours from `first` on, between what they stand for.
std::string scale_html(const std::string& low, std::size_t first, const std::string& high) {
  std::string html = "<div class=\"scale\"><span>" + low + "</span><span class=\"ramp\">";
  for (std::size_t i = first; i < kHeatColours; ++i) html += "<i class=\"h" + std::to_string(i) + "\"></i>";
  return html + "</span><span>" + high + "</span></div>\n";
}

}  // namespace

std::string escaped(std::string_view text) {
  const bool is_utf8 = io::is_utf8(text);
  std::string out;
  out.reserve(text.size());
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if ((byte < 0x20 && character != '\n' && character != '\t') || byte == 0x7F || (byte >= 0x80 && !is_utf8)) {
      out += kReplacement;
    } else if (character == '&') {
      out += "&amp;";
    } else if (character == '<') {
      out += "&lt;";
    } else if (character == '>') {
      out += "&gt;";
    } else if (character == '"') {
      out += "&quot;";
    } else if (character == '\'') {
      out += "&#39;";
    } else {
      out += character;
    }
  }
  return out;
}

std::string paragraph(std::string_view text, std::string_view css_class) {
  std::string html = "<p";
  if (!css_class.empty()) html += " class=\"" + std::string(css_class) + "\"";
  return html + ">" + escaped(text) + "</p>\n";
}

std::string bullet_list(const std::vector<std::string>& texts, std::string_view css_class) {
  if (texts.empty()) return {};
  std::string html = "<ul class=\"" + std::string(css_class) + "\">\n";
  for (const std::string& text : texts) html += "<li>" + escaped(text) + "</li>\n";
  return html + "</ul>\n";
}

Table::Table(std::string_view caption) : caption_(caption) {}

void Table::column(std::string_view title, bool is_number, std::string_view help) {
  head_ += is_number ? "<th scope=\"col\" class=\"number\"" : "<th scope=\"col\"";
  if (!help.empty()) head_ += " title=\"" + escaped(help) + "\"";
  head_ += ">" + escaped(title) + "</th>";
  is_number_.push_back(is_number);
}

void Table::row(const std::vector<std::string>& cells) {
  rows_ += "<tr>";
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const bool is_number = i < is_number_.size() && is_number_[i];
    const std::string_view tag = i == 0 ? "th" : "td";
    rows_ += "<" + std::string(tag) + (i == 0 ? " scope=\"row\"" : "") + (is_number ? " class=\"number\"" : "") + ">";
    rows_ += cells[i].empty() ? "–" : escaped(cells[i]);
    rows_ += "</" + std::string(tag) + ">";
  }
  rows_ += "</tr>\n";
}

std::string Table::html() const {
  return "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"" + escaped(caption_) +
         "\"><table><thead><tr>" + head_ + "</tr></thead>\n<tbody>" + rows_ + "</tbody></table></div>\n";
}

std::string legend(const std::vector<LegendEntry>& entries) {
  std::string html = "<ul class=\"legend\">";
  for (const auto& [css_class, text] : entries) {
    html += "<li><span class=\"key " + css_class + "\"></span>" + escaped(text) + "</li>\n";
  }
  return html + "</ul>\n";
}

std::string line_class(std::size_t line) { return "c" + std::to_string(line % kLineColours + 1); }

std::string heat_scale() { return scale_html("⅛ × mean", 0, "8 × mean"); }

// Errors have one direction only: they take the upper half of the colours.
std::string error_scale() { return scale_html("0.002", kHeatColours / 2, "0.5"); }

}  // namespace gnmr::report
