// CRC-32C (Castagnoli), as in iSCSI (RFC 3720, appendix B.4): reflected polynomial 0x82f63b78,
// initial value and final xor 0xffffffff.
//
// Thread safety: pure. The CRC instructions of SSE 4.2 or ARMv8 are used where the CPU has them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mooncake {

// The CRC of `size` bytes at `data`, going on from `crc`, the result of an earlier call over the
// bytes before them, or 0.
uint32_t Crc32c(const void* data, size_t size, uint32_t crc = 0);

// The CRC of two runs of bytes, one after the other: `a` is of the first, `b` of the second, which
// is `b_bytes` long. Takes the time of some 100 to 1,000 bytes, whatever the length.
uint32_t Crc32cCombine(uint32_t a, uint32_t b, uint64_t b_bytes);

// The same by table, without any CPU feature; for comparison.
uint32_t Crc32cByTable(const void* data, size_t size, uint32_t crc = 0);

}  // namespace mooncake
