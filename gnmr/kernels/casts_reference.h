// SPDX-License-Identifier: Apache-2.0
// What casts.h computes, on the host, with gnmr/formats: the answer that the kernels are compared with, bit for bit.
//
// Goals: no arithmetic of its own: it turns matrices and puts scales in their places. Non-goals: speed.
#pragma once

#include "gnmr/kernels/casts.h"

namespace gnmr::kernels {

/// Quantizes; everything lies in host memory.
void reference_cast(const CastTask& task);

}  // namespace gnmr::kernels
