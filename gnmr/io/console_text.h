// SPDX-License-Identifier: Apache-2.0
// Lines of a console as text: without colours, split where a progress bar was redrawn, without the prefix of a rank.
//
// Goals: one place for what terminals and launchers add to a line; linear time, no copy of a line that has no colours.
// Non-goals: what a line means (log_console.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gnmr::io {

/// The rank of a text that has no prefix of one.
inline constexpr std::int64_t kNoRank = -1;

/// One text of a console line; the view is valid until the next line is set.
struct ConsoleText {
  std::string_view text = {};
  std::int64_t rank = kNoRank;  // of a prefix such as `[rank0]:` (torchrun) or `0: ` (srun)
  bool whole = true;            // false: the file ended within it
};

/// Gives the texts of a line, one for each time it was redrawn.
class ConsoleLine {
 public:
  /// Begins with a line as `LineReader` gives it; `ended`: a line feed followed. The line must outlive its texts.
  void set(std::string_view line, bool ended);

  /// The next text that is not empty; false at the end of the line.
  bool next(ConsoleText& text);

 private:
  std::string plain_;  // reused: the line without its colours
  std::string_view rest_;
  bool ended_ = true;
};

/// Reads a number as consoles print it: as `parse_number` does, with commas between thousands (`1,234`), or with a
/// letter for thousands (`1.2K`, then M, B, T, P, E); false where it is none.
bool parse_console_number(std::string_view text, double& value);

}  // namespace gnmr::io
