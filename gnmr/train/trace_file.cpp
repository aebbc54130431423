// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/trace_file.h"

#include "gnmr/core/error.h"

namespace gnmr::train {

TraceFile::TraceFile(const std::string& path, const std::vector<std::string>& columns)
    : out_(path, std::ios::trunc), writer_(out_, columns) {
  if (!out_) throw OutputError(path + ": cannot be written");
}

void TraceFile::write(std::int64_t step, std::span<const double> values, std::span<const std::uint8_t> sampled) {
  if (step <= last_step_) return;
  last_step_ = step;
  writer_.write(step, values, sampled);
}

}  // namespace gnmr::train
