// SPDX-License-Identifier: Apache-2.0
// Which commit a program was built from, so that results can name it.
//
// Goals: one small file is compiled anew when the commit changes, nothing else. Non-goals: changes in the work tree
// after CMake ran; -DGNMR_COMMIT=TEXT names the commit where there is no checkout.
#pragma once

#include <string>

namespace gnmr::run {

/// As `git describe --always --dirty` said when CMake ran; `unknown` outside a checkout.
std::string build_commit();

}  // namespace gnmr::run
