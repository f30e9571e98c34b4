// MC_CHECK: an invariant of our own that must hold. It stays on in release builds and ends the
// process with the values; it never checks input.
#pragma once

#include <cstdio>
#include <cstdlib>

#define MC_CHECK(condition, ...)                                                            \
  do {                                                                                      \
    if (!(condition)) [[unlikely]] {                                                        \
      std::fprintf(stderr, "%s:%d: MC_CHECK(%s) failed: ", __FILE__, __LINE__, #condition); \
      std::fprintf(stderr, "" __VA_ARGS__);                                                 \
      std::fputc('\n', stderr);                                                             \
      std::abort();                                                                         \
    }                                                                                       \
  } while (0)
