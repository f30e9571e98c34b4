#include "store/layout.h"

#include "base/crc32c.h"
#include "wire/bytes.h"

namespace mooncake::store {
namespace {

constexpr uint32_t kMagic = 0x4f434d53;  // "SMCO"
constexpr uint32_t kVersion = 1;
constexpr size_t kCrcAt = 60;

}  // namespace

HeaderBytes EncodeHeader(const ObjectHeader& header) {
  HeaderBytes bytes{};
  StoreLittle(&bytes[0], kMagic);
  StoreLittle(&bytes[4], kVersion);
  StoreLittle(&bytes[8], header.generation);
  StoreLittle(&bytes[16], header.epoch);
  StoreLittle(&bytes[24], header.size_bytes);
  StoreLittle(&bytes[32], header.part_bytes);
  StoreLittle(&bytes[40], header.key_hash);
  StoreLittle(&bytes[48], header.stripe);
  StoreLittle(&bytes[kCrcAt], Crc32c(bytes.data(), kCrcAt));
  return bytes;
}

std::optional<ObjectHeader> DecodeHeader(const HeaderBytes& bytes) {
  const ObjectHeader header{.generation = LoadLittle<uint64_t>(&bytes[8]),
                            .epoch = LoadLittle<uint64_t>(&bytes[16]),
                            .size_bytes = LoadLittle<uint64_t>(&bytes[24]),
                            .part_bytes = LoadLittle<uint64_t>(&bytes[32]),
                            .key_hash = LoadLittle<uint64_t>(&bytes[40]),
                            .stripe = LoadLittle<uint64_t>(&bytes[48])};
  return IsHeader(bytes, header) ? std::optional(header) : std::nullopt;
}

bool IsHeader(const HeaderBytes& bytes, const ObjectHeader& header) {
  return bytes == EncodeHeader(header);
}

uint64_t KeyHash(std::string_view key) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : key) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return hash;
}

uint64_t Shape::part_count() const {
  if (part_bytes == 0 || part_bytes >= size_bytes) return 1;
  return (size_bytes + part_bytes - 1) / part_bytes;
}

bool Shape::IsPossible() const {
  if (size_bytes > kMaxObjectBytes || chunk_count() > kMaxChunks) return false;
  const uint64_t unit = part_count() == 1 ? kChunkBytes : part_bytes;
  return stripe_bytes % unit == 0 && stripe_count() <= kMaxExtents;
}

Chunk Shape::ChunkAt(uint64_t offset) const {
  const bool is_whole = part_count() == 1;
  const uint64_t part = is_whole ? 0 : offset / part_bytes;
  const uint64_t part_begin = is_whole ? 0 : part * part_bytes;
  const uint64_t part_end = is_whole ? size_bytes : std::min(part_begin + part_bytes, size_bytes);
  const uint64_t in_part = (offset - part_begin) / kChunkBytes;
  const uint64_t begin = part_begin + in_part * kChunkBytes;
  const uint64_t before = is_whole ? 0 : part * ChunksOf(part_bytes);
  return {before + in_part, begin, std::min(begin + kChunkBytes, part_end)};
}

uint64_t Shape::PartBytes(uint64_t part) const {
  if (part_count() == 1) return size_bytes;
  return std::min(part_bytes, size_bytes - part * part_bytes);
}

}  // namespace mooncake::store
