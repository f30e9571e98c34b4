// HashCopy: memcpy that gives the CRC-32C of the bytes, in one pass.
//
// Thread safety: free functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transfer/types.h"

namespace mooncake {

// Copies, and gives the CRC of the bytes, going on from `crc`. `is_streamed`: past the caches, as
// StreamCopy does.
// REQUIRES: after a copy that is streamed StreamFence is called, as after StreamCopy.
uint32_t HashCopy(uint8_t* target, const uint8_t* source, size_t size, uint32_t crc,
                  bool is_streamed);

// Goes on with the checksums of pieces by their local bytes.
// REQUIRES: there are as many checksums as pieces, or none.
void HashPieces(std::span<const Piece> pieces, std::span<uint32_t> checksums);

}  // namespace mooncake
