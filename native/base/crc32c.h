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

// The same by table, without any CPU feature; for comparison.
uint32_t Crc32cByTable(const void* data, size_t size, uint32_t crc = 0);

}  // namespace mooncake
