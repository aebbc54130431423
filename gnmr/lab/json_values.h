// SPDX-License-Identifier: Apache-2.0
// JSON that the lab writes. Only for sources that have nlohmann/json; reading is in gnmr/run/json_fields.h.
#pragma once

#include <cmath>

#include "gnmr/run/json_fields.h"

namespace gnmr::lab {

using Json = run::Json;

/// A number; "inf", "-inf" and "nan" as texts.
inline Json json_number(double value) {
  if (std::isfinite(value)) return value;
  if (std::isnan(value)) return "nan";
  return value > 0 ? "inf" : "-inf";
}

}  // namespace gnmr::lab
