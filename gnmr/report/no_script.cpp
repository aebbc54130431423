// SPDX-License-Identifier: Apache-2.0
// In the place of the built script where there is no npm: pages are drawn as plain SVG.
#include "gnmr/report/page_text.h"

namespace gnmr::report {

PageScript page_script() { return {}; }

}  // namespace gnmr::report
