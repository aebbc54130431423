// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "gnmr/commands.h"

namespace {

// Tensors of a step are freed and asked for again in the next one. Memory that goes back to the system in between comes
// back as pages to be cleared: a tenth of a small model's step.
void keep_memory() {
#if defined(__GLIBC__)
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 16 << 20);
#endif
}

}  // namespace

int main(int argument_count, char** arguments) {
  keep_memory();
  return gnmr::app::run_program(argument_count, arguments);
}
