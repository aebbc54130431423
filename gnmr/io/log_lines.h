// SPDX-License-Identifier: Apache-2.0
// Console logs with one line per step and one gradient norm, that of the whole model: llm.c's and Megatron's.
//
// Goals: one pass, also from a pipe; lines of other programs in between do no harm.
// Non-goals: anything else that such a line says.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "gnmr/io/byte_source.h"
#include "gnmr/io/log_fields.h"
#include "gnmr/io/row_source.h"

namespace gnmr::io {

/// What a line of a console log turned out to be.
enum class LogLineKind {
  other,              // nothing of ours
  without_norm,       // a step, but not one that should have a norm; its fields are noted
  step_without_norm,  // a step that has no gradient, such as one that the loss scaler dropped
  cut_short,          // a step whose norm cannot be read
  step_with_norm,
};

/// The step that a line speaks of.
struct LogLine {
  std::int64_t step = 0;
  double norm = 0;
};

/// A parser of one line; it fills `parsed` and notes in `fields` what the line has.
using LogLineParser = LogLineKind (*)(std::string_view line, LogLine& parsed, FieldNames& fields);

/// `s:15 trl:9.66 lr:0.000014 norm:2.40`, or `step 15/100 | loss 9.66 (+0.1z)| norm 2.40 (+0.2z)| lr 1.4e-05 | ...`.
LogLineKind parse_llmc_line(std::string_view line, LogLine& parsed, FieldNames& fields);

/// ` iteration 15/ 100 | lm loss: 9.66E+00 | grad norm: 2.400 | ... |`, whatever stands before it.
LogLineKind parse_megatron_line(std::string_view line, LogLine& parsed, FieldNames& fields);

/// What sets one console log apart from another.
struct ConsoleLog {
  LogLineParser parse;
  std::string_view unit;  // the name of the one unit, as the log calls it
  std::string_view kind;  // as in `this Megatron log`
};

inline constexpr ConsoleLog kLlmcLog{.parse = parse_llmc_line, .unit = "norm", .kind = "this llm.c log"};
inline constexpr ConsoleLog kMegatronLog{
    .parse = parse_megatron_line, .unit = "grad norm", .kind = "this Megatron log"};

/// The rows of such a log.
std::unique_ptr<RowSource> make_console_log(std::unique_ptr<ByteSource> source, const ConsoleLog& log);

}  // namespace gnmr::io
