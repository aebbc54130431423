// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/csv_record.h"

#include "gnmr/io/number_text.h"
#include "gnmr/io/text_error.h"

namespace gnmr::io {
namespace {

// Takes a record apart line by line, so that a quote left open costs one pass over the file and not one per line.
class RecordSplitter {
 public:
  RecordSplitter(const std::string& file, std::vector<CsvCell>& cells, std::uint64_t line)
      : file_(file), cells_(cells), line_(line) {
    begin_cell();
  }

  // Whether the record goes on in the next line.
  bool add_line(std::string_view text) {
    for (std::size_t at = 0; at < text.size(); ++at) {
      const char character = text[at];
      switch (state_) {
        case State::unquoted:
          take_unquoted(character);
          break;
        case State::quoted:
          if (character == '"') {
            state_ = State::quote_seen;
          } else {
            cell().text += character;
          }
          break;
        case State::quote_seen:
          take_after_quote(character);
          break;
      }
    }
    return state_ == State::quoted;
  }

  void add_line_ending(std::string_view ending, std::uint64_t next_line) {
    cell().text += ending;
    line_ = next_line;
  }

  void finish() {
    if (state_ == State::quoted) fail("the quote is never closed");
    end_cell();
    cells_.resize(count_);
  }

 private:
  enum class State { unquoted, quoted, quote_seen };

  CsvCell& cell() { return cells_[count_ - 1]; }

  void begin_cell() {
    if (count_ == cells_.size()) cells_.emplace_back();
    ++count_;
    cell().text.clear();
    cell().line = line_;
    cell().quoted = false;
    state_ = State::unquoted;
  }

  void end_cell() {
    if (cell().quoted) return;
    cell().text = std::string(trim_blanks(cell().text));
  }

  void take_unquoted(char character) {
    if (character == ',') {
      end_cell();
      begin_cell();
    } else if (character != '"') {
      cell().text += character;
    } else if (cell().text.empty()) {
      cell().quoted = true;
      state_ = State::quoted;
    } else {
      fail("a stray quote");
    }
  }

  void take_after_quote(char character) {
    if (character == '"') {
      cell().text += '"';
      state_ = State::quoted;
    } else if (character == ',') {
      end_cell();
      begin_cell();
    } else {
      fail("text after the closing quote");
    }
  }

  [[noreturn]] void fail(std::string_view what) const {
    throw error_at(at_cell(file_, cells_[count_ - 1].line, count_), what);
  }

  const std::string& file_;
  std::vector<CsvCell>& cells_;
  std::uint64_t line_;
  std::size_t count_ = 0;
  State state_ = State::unquoted;
};

}  // namespace

void split_csv_record(const std::string& file, std::string_view line, LineReader& lines, std::vector<CsvCell>& cells) {
  RecordSplitter splitter(file, cells, lines.line_number());
  while (splitter.add_line(line)) {
    const std::string ending(lines.ending());
    if (!lines.next(line)) break;
    splitter.add_line_ending(ending, lines.line_number());
  }
  splitter.finish();
}

bool next_csv_record(const std::string& file, LineReader& lines, std::vector<CsvCell>& cells) {
  std::string_view line;
  while (lines.next(line)) {
    if (is_white(line)) continue;
    split_csv_record(file, line, lines, cells);
    return true;
  }
  return false;
}

void append_csv_cell(std::string& text, std::string_view name) {
  const bool blank_at_an_end = !name.empty() && (is_blank(name.front()) || is_blank(name.back()));
  if (!blank_at_an_end && name.find_first_of(",\"\r\n") == std::string_view::npos) {
    text += name;
    return;
  }
  text += '"';
  for (const char character : name) {
    if (character == '"') text += '"';
    text += character;
  }
  text += '"';
}

}  // namespace gnmr::io
