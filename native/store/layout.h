// How an object lies in its extents, one a stripe: the header that says what it is, then payload.
// Checksums are per chunk: parts of equal size, each cut into chunks of at most kChunkBytes.
//
// Thread safety: pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "store/messages.h"

namespace mooncake::store {

// 64 bytes, little endian:
//   0 magic u32 | 4 version u32 | 8 generation u64 | 16 epoch u64 | 24 size u64 | 32 part u64
//   40 hash of the key u64 | 48 number of the stripe u64 | 56 zero | 60 CRC-32C of bytes 0..60
struct ObjectHeader {
  uint64_t generation = 0;
  uint64_t epoch = 0;
  uint64_t size_bytes = 0;
  uint64_t part_bytes = 0;
  uint64_t key_hash = 0;
  uint64_t stripe = 0;
  bool operator==(const ObjectHeader&) const = default;
};
using HeaderBytes = std::array<uint8_t, kHeaderBytes>;

HeaderBytes EncodeHeader(const ObjectHeader& header);
// Nothing when the bytes are no intact header.
std::optional<ObjectHeader> DecodeHeader(const HeaderBytes& bytes);
// False when the bytes are not exactly this header.
bool IsHeader(const HeaderBytes& bytes, const ObjectHeader& header);
// FNV-1a, 64 bits: equal in every process.
uint64_t KeyHash(std::string_view key);

// A run of local memory.
struct Range {
  uint64_t address = 0;
  uint64_t length = 0;
};

// At most what a uint64_t holds: a sum that wrapped would fit anywhere.
inline uint64_t TotalLength(std::span<const Range> memory) {
  uint64_t total = 0;
  for (const Range& range : memory) {
    if (__builtin_add_overflow(total, range.length, &total)) return UINT64_MAX;
  }
  return total;
}

// What one checksum is of: bytes [begin, end) of the object.
struct Chunk {
  uint64_t index = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
};

// How an object is cut: into parts, each into chunks; and into stripes of whole chunks.
struct Shape {
  uint64_t size_bytes = 0;
  uint64_t part_bytes = 0;    // 0: one part
  uint64_t stripe_bytes = 0;  // 0: one stripe

  uint64_t chunk_count() const { return ChunkCount(size_bytes, part_bytes); }
  uint64_t stripe_count() const { return StripeCount(size_bytes, stripe_bytes); }
  uint64_t part_count() const;  // at least 1
  // False when a chunk would lie in two stripes, or there is more of it than may be.
  bool IsPossible() const;

  // The chunk that holds byte `offset`.
  // REQUIRES: offset < size_bytes.
  Chunk ChunkAt(uint64_t offset) const;
  // REQUIRES: part < part_count().
  uint64_t PartOffset(uint64_t part) const { return part_count() == 1 ? 0 : part * part_bytes; }
  uint64_t PartBytes(uint64_t part) const;

  uint64_t StripeOf(uint64_t offset) const { return stripe_bytes == 0 ? 0 : offset / stripe_bytes; }
  // Where a byte of the object is in the extent of its stripe.
  uint64_t InExtent(uint64_t offset) const {
    return kHeaderBytes + (stripe_bytes == 0 ? offset : offset % stripe_bytes);
  }
};

// Calls visit(chunk, address, offset, length) for each run of `memory`, which holds the object's
// bytes from `offset` on, that lies within one chunk; in order.
// REQUIRES: offset + TotalLength(memory) <= shape.size_bytes.
template <typename Visit>
void ForEachCut(const Shape& shape, std::span<const Range> memory, uint64_t offset, Visit visit) {
  Chunk chunk;
  for (Range range : memory) {
    while (range.length > 0) {
      if (offset >= chunk.end) chunk = shape.ChunkAt(offset);
      const uint64_t length = std::min(range.length, chunk.end - offset);
      visit(chunk, range.address, offset, length);
      range.address += length;
      range.length -= length;
      offset += length;
    }
  }
}

}  // namespace mooncake::store
