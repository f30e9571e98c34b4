#include "transfer/transports/stream_copy.h"

#include <algorithm>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace mooncake {

#ifdef __SSE2__

namespace {

constexpr size_t kLineBytes = 64;
constexpr size_t kAheadBytes = 1024;

void StreamLine(uint8_t* target, const uint8_t* source) {
  auto* to = reinterpret_cast<__m128i*>(target);
  const auto* from = reinterpret_cast<const __m128i*>(source);
  const __m128i first = _mm_loadu_si128(from);
  const __m128i second = _mm_loadu_si128(from + 1);
  const __m128i third = _mm_loadu_si128(from + 2);
  const __m128i fourth = _mm_loadu_si128(from + 3);
  _mm_stream_si128(to, first);
  _mm_stream_si128(to + 1, second);
  _mm_stream_si128(to + 2, third);
  _mm_stream_si128(to + 3, fourth);
}

}  // namespace

void StreamCopy(uint8_t* target, const uint8_t* source, size_t size) {
  const size_t past_line = reinterpret_cast<uintptr_t>(target) % kLineBytes;
  const size_t head = std::min(size, (kLineBytes - past_line) % kLineBytes);
  std::memcpy(target, source, head);
  size_t done = head;
  for (; size - done >= kLineBytes; done += kLineBytes) {
    __builtin_prefetch(source + done + kAheadBytes);
    StreamLine(target + done, source + done);
  }
  std::memcpy(target + done, source + done, size - done);
}

void StreamFence() { _mm_sfence(); }

#else

void StreamCopy(uint8_t* target, const uint8_t* source, size_t size) {
  std::memcpy(target, source, size);
}

void StreamFence() {}

#endif

}  // namespace mooncake
