// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/log_nvdlfw.h"

#include <array>
#include <string>

#include "gnmr/io/json_text.h"
#include "gnmr/io/line_reader.h"
#include "gnmr/io/log_fields.h"
#include "gnmr/io/log_points.h"
#include "gnmr/io/number_text.h"
#include "gnmr/io/row_source.h"
#include "gnmr/io/text_error.h"

namespace gnmr::io {
namespace {

constexpr std::string_view kIteration = "iteration=";
constexpr std::string_view kValue = "value=";
constexpr std::string_view kPrefixEnd = " - ";
constexpr std::array<std::string_view, 6> kTensors{"_activation_", "_gradient_", "_weight_",
                                                   "_output_",     "_wgrad_",    "_dgrad_"};

// `wgrad_l2_norm` of `layers.1.fc1_wgrad_l2_norm`: a message need not repeat each layer.
std::string_view statistic_of(std::string_view name) {
  for (const std::string_view tensor : kTensors) {
    if (const std::size_t at = name.rfind(tensor); at != std::string_view::npos) return name.substr(at + 1);
  }
  return name;
}

}  // namespace

bool parse_nvdlfw_line(std::string_view line, NvdlfwLine& parsed) {
  const std::size_t value = line.rfind(kValue);
  if (value == std::string_view::npos) return false;
  const std::string_view before_value = line.substr(0, value);
  const std::size_t iteration = before_value.rfind(kIteration);
  if (iteration == std::string_view::npos || iteration == 0 || !is_blank(line[iteration - 1])) return false;
  if (!parse_whole(trim_blanks(before_value.substr(iteration + kIteration.size())), parsed.iteration)) return false;
  std::string_view name = trim_blanks(line.substr(0, iteration));
  // `time - LEVEL - name`: layer names have no blanks, so the last separator is the logger's.
  if (const std::size_t prefix = name.rfind(kPrefixEnd); prefix != std::string_view::npos) {
    name.remove_prefix(prefix + kPrefixEnd.size());
  }
  parsed.name = trim_blanks(name);
  parsed.value = trim_blanks(line.substr(value + kValue.size()));
  return !parsed.name.empty();
}

std::unique_ptr<TraceReader> read_nvdlfw_log(ByteSource& source, const TraceOptions& options) {
  const FieldPattern pattern(options.field_pattern);
  PointLog log(options.allow_restart);
  FieldNames fields;
  LineReader lines(source);
  NvdlfwLine parsed;
  std::uint64_t zeros = 0;
  bool torn = false;
  std::string_view line;
  while (lines.next(line)) {
    if (!parse_nvdlfw_line(line, parsed)) continue;
    fields.add(statistic_of(parsed.name));
    if (!pattern.matches(parsed.name)) continue;
    const std::string where = at_line(source.name(), lines.line_number());
    double norm = 0;
    if (!parse_number(parsed.value, norm)) {
      torn = lines.ending().empty();
      if (torn) break;
      throw error_at(where, in_quotes(parsed.value) + " is not a number");
    }
    if (norm == 0) ++zeros;
    log.add(parsed.name, parsed.iteration, norm, where);
  }
  if (log.empty()) throw no_norms_error(source.name(), "this nvdlfw-inspect log", fields, pattern);
  // Gradients come into being from the last layer to the first, and that is how the log lists them.
  log.reverse_units();
  if (zeros > 0) {
    log.note(counted(zeros, "norm") + " read as 0: this log keeps four decimals, so a small norm looks like none");
  }
  if (torn) log.note("the last line is cut short and left out");
  return log.finish(source.bytes_read());
}

}  // namespace gnmr::io
