// SPDX-License-Identifier: Apache-2.0
// Hopper's matrix multiplication of a warpgroup, E4M3 by E4M3 into float32, and what keeps its order. For files
// compiled for sm_90a.
//
// Goals: one instruction per name. Non-goals: operands in registers, other formats and sizes.
//
// A warpgroup is 128 threads. `sums` of thread t: sums[4 j + i] belongs to row 16 (t / 32) + t % 32 / 4 + 8 (i / 2) and
// to column 8 j + 2 (t % 4) + i % 2. Operands lie in shared memory as TMA's 128-byte swizzle writes them: rows of 128
// bytes, and the first of a multiple of 1024 bytes.
#pragma once

#include <cstdint>

namespace gnmr::kernels {

/// Where an operand begins, as wgmma reads it: eights of rows are 1024 bytes apart, 128-byte swizzle.
__device__ __forceinline__ std::uint64_t wgmma_operand(unsigned shared_address) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  constexpr std::uint64_t kFromEightToEight = std::uint64_t{1024 / 16} << 32;
  constexpr std::uint64_t kIgnoredWithSwizzle = std::uint64_t{1} << 16;
  return kSwizzle128 | kFromEightToEight | kIgnoredWithSwizzle | ((shared_address & 0x3ffffu) >> 4);
}

/// The operand this many times 16 bytes on: 2 per step along K inside a row, multiples of 64 for later rows. Addresses
/// in shared memory carry nothing into the rest.
__device__ __forceinline__ std::uint64_t wgmma_operand_at(std::uint64_t operand, unsigned sixteens) {
  return (operand & 0xffffffff00000000u) | (static_cast<unsigned>(operand) + sixteens);
}

/// Before the first multiplication after registers were written otherwise.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// Until all but the last `kInFlight` groups are done.
template <int kInFlight>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kInFlight) : "memory");
}

/// The compiler moves no use of these sums over this place: it does not know that they come later.
template <unsigned kCount>
__device__ __forceinline__ void hold_in_place(float (&sums)[kCount]) {
#pragma unroll
  for (unsigned i = 0; i < kCount; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

inline constexpr unsigned kWgmmaColumns = 128;
inline constexpr unsigned kWgmmaSums = kWgmmaColumns / 2;  // of a thread

/// 64 rows by 128 columns over 32 of K: sums += a b^T; without kAdds, sums = a b^T.
template <bool kAdds>
__device__ __forceinline__ void wgmma(float (&sums)[kWgmmaSums], std::uint64_t a, std::uint64_t b) {
#define GNMR_EIGHT(i)                                                                                           \
  "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), "+f"(sums[i + 5]), \
      "+f"(sums[i + 6]), "+f"(sums[i + 7])
  asm volatile(
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
      "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
      "}, %64, %65, adds, 1, 1;\n}\n"
      : GNMR_EIGHT(0), GNMR_EIGHT(8), GNMR_EIGHT(16), GNMR_EIGHT(24), GNMR_EIGHT(32), GNMR_EIGHT(40), GNMR_EIGHT(48),
        GNMR_EIGHT(56)
      : "l"(a), "l"(b), "n"(kAdds ? 1 : 0));
#undef GNMR_EIGHT
}

}  // namespace gnmr::kernels
