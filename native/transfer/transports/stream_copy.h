// StreamCopy: memcpy for what is larger than a core's own caches, past them.
//
// Thread safety: free functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mooncake {

// A plain copy first reads every line that it is about to overwrite; this does not, but leaves
// nothing of the target in the cache. With 2 MiB of L2, blocks of 4 to 64 MiB took 10 to 30 % less
// time, blocks of 1 MiB that were copied again and again 30 % more.
inline constexpr uint64_t kStreamBytes = 4u << 20;
// Where the target is in no cache anyhow. Walking over 64 MiB, hashed writes of 64 KiB took 15 %
// less time, of 256 KiB 30 %, of 1 MiB 20 %; reads of 256 KiB took as long, of 1 MiB 25 % less.
inline constexpr uint64_t kColdWriteBytes = 64u << 10;
inline constexpr uint64_t kColdReadBytes = 1u << 20;

// Copies like memcpy. Where the CPU has no such stores it is memcpy.
// REQUIRES: StreamFence is called before anybody else is told of the bytes.
void StreamCopy(uint8_t* target, const uint8_t* source, size_t size);
void StreamFence();

}  // namespace mooncake
