// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/build_commit.h"

namespace gnmr::run {

std::string build_commit() { return GNMR_COMMIT_TEXT; }

}  // namespace gnmr::run
