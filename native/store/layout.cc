#include "store/layout.h"

#include <algorithm>

#include "base/check.h"
#include "base/crc32c.h"
#include "wire/bytes.h"

namespace mooncake::store {
namespace {

constexpr uint32_t kMagic = 0x4f434d53;  // "SMCO"
constexpr uint32_t kVersion = 1;
constexpr size_t kCrcAt = 60;

void AppendChunks(uint64_t bytes, std::vector<uint64_t>& chunks) {
  for (; bytes > kChunkBytes; bytes -= kChunkBytes) chunks.push_back(kChunkBytes);
  if (bytes > 0) chunks.push_back(bytes);
}

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
  StoreLittle(&bytes[kCrcAt], Crc32c(bytes.data(), kCrcAt));
  return bytes;
}

std::optional<ObjectHeader> DecodeHeader(const HeaderBytes& bytes) {
  const ObjectHeader header{.generation = LoadLittle<uint64_t>(&bytes[8]),
                            .epoch = LoadLittle<uint64_t>(&bytes[16]),
                            .size_bytes = LoadLittle<uint64_t>(&bytes[24]),
                            .part_bytes = LoadLittle<uint64_t>(&bytes[32]),
                            .key_hash = LoadLittle<uint64_t>(&bytes[40])};
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

uint64_t PartCount(uint64_t size_bytes, uint64_t part_bytes) {
  if (part_bytes == 0 || part_bytes >= size_bytes) return 1;
  return (size_bytes + part_bytes - 1) / part_bytes;
}

Section PartOf(uint64_t size_bytes, uint64_t part_bytes, uint64_t part) {
  if (PartCount(size_bytes, part_bytes) == 1) return WholeOf(size_bytes, 0);
  Section section;
  section.offset = part * part_bytes;
  section.bytes = std::min(part_bytes, size_bytes - section.offset);
  section.first_chunk = part * ChunksOf(part_bytes);
  AppendChunks(section.bytes, section.chunks);
  return section;
}

Section WholeOf(uint64_t size_bytes, uint64_t part_bytes) {
  Section section{0, size_bytes, 0, {}};
  const uint64_t step = part_bytes == 0 ? size_bytes : part_bytes;
  for (uint64_t at = 0; at < size_bytes; at += std::min(step, size_bytes - at)) {
    AppendChunks(std::min(step, size_bytes - at), section.chunks);
  }
  return section;
}

std::vector<uint32_t> ChecksumsOf(std::span<const Range> memory, std::span<const uint64_t> chunks) {
  std::vector<uint32_t> checksums;
  checksums.reserve(chunks.size());
  size_t at = 0;
  uint64_t used = 0;  // of memory[at]
  for (uint64_t left : chunks) {
    uint32_t crc = 0;
    while (left > 0) {
      MC_CHECK(at < memory.size(), "the ranges are shorter than the chunks");
      const uint64_t count = std::min(left, memory[at].length - used);
      crc = Crc32c(reinterpret_cast<const void*>(memory[at].address + used), count, crc);
      used += count;
      left -= count;
      if (used == memory[at].length) ++at, used = 0;
    }
    checksums.push_back(crc);
  }
  return checksums;
}

}  // namespace mooncake::store
