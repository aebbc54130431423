// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/trace_writer.h"

#include "gnmr/core/error.h"
#include "gnmr/io/csv_record.h"
#include "gnmr/io/csv_trace.h"
#include "gnmr/io/number_text.h"

namespace gnmr::io {

TraceWriter::TraceWriter(std::ostream& out, const std::vector<std::string>& units) : out_(out), units_(units.size()) {
  line_ = kStepColumn;
  for (const std::string& unit : units) {
    line_ += ',';
    append_csv_cell(line_, unit);
  }
  line_ += '\n';
  out_.write(line_.data(), static_cast<std::streamsize>(line_.size()));
}

void TraceWriter::write(std::int64_t step, std::span<const double> norms, std::span<const std::uint8_t> sampled) {
  if (norms.size() != units_ || (!sampled.empty() && sampled.size() != units_)) {
    throw Error("expected " + std::to_string(units_) + " norms, got " + std::to_string(norms.size()));
  }
  line_ = std::to_string(step);
  for (std::size_t unit = 0; unit < norms.size(); ++unit) {
    line_ += ',';
    if (sampled.empty() || sampled[unit] != 0) append_number(line_, norms[unit]);
  }
  line_ += '\n';
  out_.write(line_.data(), static_cast<std::streamsize>(line_.size()));
}

}  // namespace gnmr::io
