// SPDX-License-Identifier: Apache-2.0
// What the script draws, as one JSON document that can stand inside an HTML page.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gnmr/report/run_view.h"
#include "gnmr/report/suite_view.h"
#include "gnmr/report/sweep_page.h"

namespace gnmr::report {

/// The data of one run.
std::string run_payload(const RunView& run);

/// The data of a suite.
std::string suite_payload(const SuiteView& suite);

/// The charts of a sweep.
std::string sweep_payload(const SweepPage& page);

/// Bytes as base64.
std::string base64(std::string_view bytes);

/// An error as one byte: 0 none, 255 not finite, 1 to 254 from 1/4096 to 1 in equal steps of its logarithm.
unsigned char error_byte(float error);

/// A ratio as one byte: 0 none, 255 not finite, 1 to 254 from 1/64 to 64 in equal steps of its logarithm.
unsigned char ratio_byte(float ratio);

}  // namespace gnmr::report
