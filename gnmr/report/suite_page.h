// SPDX-License-Identifier: Apache-2.0
// The page of a suite: all arms side by side, then each run.
#pragma once

#include <string>

#include "gnmr/report/figure.h"
#include "gnmr/report/suite_view.h"

namespace gnmr::report {

/// Everything below the page's title.
std::string suite_html(const SuiteView& suite);

}  // namespace gnmr::report
