// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train/error_file.h"

#include <cmath>

#include "gnmr/core/error.h"

namespace gnmr::train {

ErrorFile::ErrorFile(const std::string& path, const std::vector<std::string>& columns)
    : out_(path, std::ios::trunc), writer_(out_, columns) {
  if (!out_) throw Error(path + ": cannot be written");
}

void ErrorFile::write(std::int64_t step, std::span<const double> errors) {
  if (step <= last_step_) return;
  last_step_ = step;
  values_.assign(errors.begin(), errors.end());
  measured_.assign(errors.size(), 1);
  for (std::size_t index = 0; index < errors.size(); ++index) {
    if (!std::isnan(errors[index])) continue;
    values_[index] = 0;
    measured_[index] = 0;
  }
  writer_.write(step, values_, measured_);
}

}  // namespace gnmr::train
