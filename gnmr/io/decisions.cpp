// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/decisions.h"

#include "gnmr/io/json_text.h"

namespace gnmr::io {

DecisionWriter::DecisionWriter(const std::string& path, const std::vector<Unit>& units)
    : sink_(make_direct_sink(open_record_file(path, ExistingFile::replace, {}).file, path, {})) {
  for (const Unit& unit : units) append_json_string(quoted_names_.emplace_back(), unit.name);
}

void DecisionWriter::append_names(const char* key, std::span<const UnitIndex> units) {
  line_ += key;
  for (const UnitIndex unit : units) {
    line_ += quoted_names_[unit];
    line_ += ',';
  }
  if (units.empty()) {
    line_ += ']';
  } else {
    line_.back() = ']';
  }
}

void DecisionWriter::write(const Decision& decision) {
  line_ = "{\"step\":";
  append_json_number(line_, decision.step);
  line_ += decision.common ? ",\"common\":true" : ",\"common\":false";
  append_names(",\"admitted\":[", decision.admitted);
  append_names(",\"denied\":[", decision.denied);
  append_names(",\"futile\":[", decision.futile);
  append_names(",\"released\":[", decision.released);
  append_names(",\"recovered\":[", decision.recovered);
  if (!decision.standing.empty()) append_names(",\"standing\":[", decision.standing);
  line_ += "}\n";
  sink_->append(line_);
}

void DecisionWriter::close() { sink_->close({}); }

}  // namespace gnmr::io
