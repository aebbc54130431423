// SPDX-License-Identifier: Apache-2.0
// Console logs that name their metrics: torchtitan, Hugging Face, NeMo, DeepSpeed, nanotron, OLMo, llm-foundry.
//
// Goals: a format says only how a line is split into a step and its fields; colours, ranks, redrawn progress bars, torn
// ends, which fields are norms and what a restart drops stand in one place. Linear time; about 24 bytes per norm.
// Non-goals: constant memory; llm.c's and Megatron's logs, which have one norm and are streams (log_lines.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "gnmr/io/byte_source.h"
#include "gnmr/io/trace.h"

namespace gnmr::io {

/// What a text is to a format.
enum class ConsoleRole {
  other,   // nothing of this format
  begins,  // a step begins; its fields may follow in the same text
  more,    // fields of the step that began before
};

/// A metric as printed; the views are of the text.
struct ConsoleField {
  std::string_view name = {};
  std::string_view value = {};
  bool cut = false;  // the end of the value may be missing
};

/// What a format reads in one text.
struct ConsoleParse {
  std::optional<std::int64_t> step = {};   // none: this log does not number its lines
  std::optional<std::int64_t> epoch = {};  // given where `step` counts from the start of an epoch
  std::vector<ConsoleField> fields = {};

  void clear() {
    step.reset();
    epoch.reset();
    fields.clear();
  }
};

/// Splits a text; `whole` is false where the file ended within it.
using ConsoleParser = ConsoleRole (*)(std::string_view text, bool whole, ConsoleParse& parse);

/// What sets one of these logs apart from another.
struct ConsoleFormat {
  TraceFormat format;
  ConsoleParser parse;
  std::string_view kind;        // as in `this torchtitan log`
  std::string_view step_field;  // a field that has the step, and is better than the step of the line; may be empty
  bool redrawn;                 // a progress bar: of several drawings of a step the last counts
  std::string_view hint;        // how the library is made to log gradient norms
};

/// Every such format.
std::span<const ConsoleFormat> console_formats();

/// The entry of `format`; null where it is not such a format.
const ConsoleFormat* console_format(TraceFormat format);

/// Reads such a log.
std::unique_ptr<TraceReader> read_console_log(ByteSource& source, const ConsoleFormat& format,
                                              const TraceOptions& options);

}  // namespace gnmr::io
