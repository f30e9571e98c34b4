// Patterns: bytes that say where they belong and of which round they are, for te-bench to verify.
//
// Word i (8 bytes, little-endian) of the pattern of `seed` is a mix of seed and i. No two words of
// one pattern are equal. Seeds 2 n and 2 n + 1 are each other's complement: memory that was filled
// with one of them before the other is to arrive shows each byte that never came.
//
// Thread safety: free functions.
#pragma once

#include <cstdint>

namespace mooncake {

// Writes bytes [offset, offset + size) of the pattern.
void FillPattern(void* data, uint64_t size, uint64_t seed, uint64_t offset);

// The index of the first byte of `data` that is not the pattern's; `size` when all are.
uint64_t CheckPattern(const void* data, uint64_t size, uint64_t seed, uint64_t offset);

}  // namespace mooncake
