// SPDX-License-Identifier: Apache-2.0
// Takes back what a failed write left behind.
#pragma once

#include <cstddef>

namespace gnmr::io {

/// Cuts the last `torn_bytes` from a regular file; anything else, and a file that cannot be cut, stays as it is.
void cut_torn_record(int descriptor, std::size_t torn_bytes);

}  // namespace gnmr::io
