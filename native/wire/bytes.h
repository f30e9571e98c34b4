// Little-endian integers in memory, whatever the machine.
#pragma once

#include <cstdint>

namespace mooncake {

template <typename T>
inline void StoreLittle(uint8_t* to, T value) {
  for (unsigned i = 0; i < sizeof(T); ++i) to[i] = static_cast<uint8_t>(uint64_t{value} >> (8 * i));
}

template <typename T>
inline T LoadLittle(const uint8_t* from) {
  uint64_t value = 0;
  for (unsigned i = 0; i < sizeof(T); ++i) value |= uint64_t{from[i]} << (8 * i);
  return static_cast<T>(value);
}

}  // namespace mooncake
