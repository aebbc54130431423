// SPDX-License-Identifier: Apache-2.0
// Each chart of the page as static SVG.
#pragma once

#include <optional>
#include <string>

#include "gnmr/report/run_view.h"
#include "gnmr/report/suite_view.h"

namespace gnmr::report {

/// Charts of a run; `alternative` says in words what one sees.
std::string plain_loss(const RunView& run, const std::string& alternative);
std::string plain_grad_norm(const RunView& run, const std::string& alternative);
std::string plain_heat_map(const RunView& run, const std::string& alternative);
std::string plain_timeline(const RunView& run, const std::string& alternative);
std::string plain_use(const RunView& run, const std::string& alternative);

/// Curves of all arms; `pick` chooses the quantity. Losses have a ceiling, shares of the budget none.
std::string plain_arms(const SuiteView& suite, ArmCurves ArmView::*pick, const std::string& y_name,
                       const std::string& alternative);

/// The gap that each arm closes, with its interval.
std::string plain_gaps(const SuiteView& suite, const std::string& alternative);

/// The colour of an arm as a CSS class.
std::string arm_class(std::size_t arm);

}  // namespace gnmr::report
