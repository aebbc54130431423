// SPDX-License-Identifier: Apache-2.0
// The part of a page that shows one run.
#pragma once

#include <cstddef>
#include <string>

#include "gnmr/report/figure.h"
#include "gnmr/report/run_view.h"

namespace gnmr::report {

/// Headline numbers, each in a box.
std::string facts_html(const std::vector<Fact>& facts);

/// Headline numbers, charts and tables of a run. `index` is its place in the page's data, `level` that of its headings.
std::string run_html(const RunView& run, std::size_t index, int level);

}  // namespace gnmr::report
