// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/types.h"

namespace gnmr {

const char* to_string(RiskKind kind) {
  switch (kind) {
    case RiskKind::none:
      return "none";
    case RiskKind::non_finite:
      return "non-finite";
    case RiskKind::rise:
      return "rise";
    case RiskKind::fall:
      return "fall";
    case RiskKind::error:
      return "error";
    case RiskKind::coarse:
      return "coarse";
    case RiskKind::fill:
      return "fill";
  }
  return "none";
}

}  // namespace gnmr
