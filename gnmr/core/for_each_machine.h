// SPDX-License-Identifier: Apache-2.0
// A mark for loops that are worth compiling for newer machines too.
#pragma once

// The linker's resolver takes the best of the copies when the program starts.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__gnu_linux__)
#define GNMR_FOR_EACH_MACHINE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define GNMR_FOR_EACH_MACHINE
#endif
