// Fold: CRC-32C by carry-less multiplication in 512-bit registers, with a copy of the bytes on the
// way if one is wanted. For crc32c.cc and those that copy.
//
// A run of bytes is a polynomial. Its first 256 bytes, multiplied by x^2048 modulo the CRC's
// polynomial, are added to the next 256, and so on; what is left at the end has the CRC of all.
//
// Thread safety: pure.
// Source: Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
// Instruction", Intel, 2009; here for reflected bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/crc32c.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define MC_CRC_FOLDS 1
#define MC_FOLD_TARGET __attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul")))
#endif

namespace mooncake::crc32c {

inline constexpr uint32_t kPolynomial = 0x82f63b78;

// Polynomials modulo the CRC's are held as it is: reflected, bit 31 is x^0.
inline constexpr uint32_t kOne = 0x80000000;

constexpr uint32_t TimesX(uint32_t a) { return (a >> 1) ^ ((a & 1) ? kPolynomial : 0); }

constexpr uint32_t PowerOfX(int exponent) {
  uint32_t power = kOne;
  for (int i = 0; i < exponent; ++i) power = TimesX(power);
  return power;
}

#ifdef MC_CRC_FOLDS

// Below this, a table or the CRC instruction is as fast.
inline constexpr size_t kFoldBytes = 512;

// Where the bytes go, besides.
enum class FoldCopy { kNone, kCached, kStreamed };

inline bool CpuFolds() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("vpclmulqdq");
}

// Multiplies each 128-bit lane by x^(8 * kBytes), up to 2^95 times the CRC's polynomial.
// The product of two reflected numbers comes out one bit short, and 32-bit factors stand 32 bits
// low in 64: hence 31 = 64 - 32 - 1 for the first half of a lane, and 64 less for the second.
template <int kBytes>
MC_FOLD_TARGET inline __m512i FoldLanes(__m512i lanes) {
  constexpr int64_t first = PowerOfX(8 * kBytes + 31);
  constexpr int64_t second = PowerOfX(8 * kBytes - 33);
  const __m512i factors = _mm512_set4_epi64(second, first, second, first);
  return _mm512_xor_si512(_mm512_clmulepi64_epi128(lanes, factors, 0x00),
                          _mm512_clmulepi64_epi128(lanes, factors, 0x11));
}

template <FoldCopy kCopy>
MC_FOLD_TARGET inline __m512i LoadLine(uint8_t* target, const uint8_t* source) {
  const __m512i line = _mm512_loadu_si512(source);
  if constexpr (kCopy == FoldCopy::kCached) _mm512_storeu_si512(target, line);
  if constexpr (kCopy == FoldCopy::kStreamed) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(target), line);
  }
  return line;
}

// The CRC of `size` bytes, going on from `crc`. Each is loaded once.
// REQUIRES: size is a multiple of 64 and at least 256; the CPU folds; a streamed target is aligned
// to 64.
template <FoldCopy kCopy>
MC_FOLD_TARGET inline uint32_t Fold(uint8_t* target, const uint8_t* source, size_t size,
                                    uint32_t crc) {
  constexpr size_t kAheadBytes = 2048;
  __m512i a = LoadLine<kCopy>(target, source);
  __m512i b = LoadLine<kCopy>(target + 64, source + 64);
  __m512i c = LoadLine<kCopy>(target + 128, source + 128);
  __m512i d = LoadLine<kCopy>(target + 192, source + 192);
  const __m128i start = _mm_cvtsi32_si128(static_cast<int>(~crc));
  a = _mm512_xor_si512(a, _mm512_zextsi128_si512(start));
  size_t at = 256;
  for (; at + 256 <= size; at += 256) {
    if constexpr (kCopy == FoldCopy::kStreamed) {
      for (size_t line = 0; line < 256; line += 64) {
        __builtin_prefetch(source + at + kAheadBytes + line);
      }
    }
    a = _mm512_xor_si512(FoldLanes<256>(a), LoadLine<kCopy>(target + at, source + at));
    b = _mm512_xor_si512(FoldLanes<256>(b), LoadLine<kCopy>(target + at + 64, source + at + 64));
    c = _mm512_xor_si512(FoldLanes<256>(c), LoadLine<kCopy>(target + at + 128, source + at + 128));
    d = _mm512_xor_si512(FoldLanes<256>(d), LoadLine<kCopy>(target + at + 192, source + at + 192));
  }
  b = _mm512_xor_si512(FoldLanes<64>(a), b);
  c = _mm512_xor_si512(FoldLanes<64>(b), c);
  d = _mm512_xor_si512(FoldLanes<64>(c), d);
  for (; at < size; at += 64) {
    d = _mm512_xor_si512(FoldLanes<64>(d), LoadLine<kCopy>(target + at, source + at));
  }
  uint8_t rest[64];
  _mm512_storeu_si512(rest, d);
  return Crc32c(rest, sizeof rest, ~uint32_t{0});  // from a register of 0
}

#endif

}  // namespace mooncake::crc32c
