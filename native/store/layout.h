// How an object lies in an extent: the header that says what it is, then the payload, whose
// checksums are per chunk: parts of equal size, each cut into chunks of at most kChunkBytes.
//
// Thread safety: pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/messages.h"

namespace mooncake::store {

// 64 bytes, little endian:
//   0 magic u32 | 4 version u32 | 8 generation u64 | 16 epoch u64 | 24 size u64 | 32 part u64
//   40 hash of the key u64 | 48 zero | 60 CRC-32C of bytes 0..60
struct ObjectHeader {
  uint64_t generation = 0;
  uint64_t epoch = 0;
  uint64_t size_bytes = 0;
  uint64_t part_bytes = 0;
  uint64_t key_hash = 0;
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

// Where an extent is, as a client reaches it.
struct ExtentAddress {
  NodeId node = 0;
  std::string endpoint;
  uint64_t offset = 0;  // of the header, in the node's segment
};

// A run of local memory.
struct Range {
  uint64_t address = 0;
  uint64_t length = 0;
};

// Local memory, and which bytes of an object it holds: [offset, offset + bytes) of the payload,
// whose chunks begin with number `first_chunk` and have the lengths `chunks`.
struct Section {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t first_chunk = 0;
  std::vector<uint64_t> chunks;
};

uint64_t PartCount(uint64_t size_bytes, uint64_t part_bytes);  // at least 1
// REQUIRES: part < PartCount.
Section PartOf(uint64_t size_bytes, uint64_t part_bytes, uint64_t part);
Section WholeOf(uint64_t size_bytes, uint64_t part_bytes);

// The CRC-32C of each chunk of the bytes that `memory` holds in order.
// REQUIRES: the ranges' lengths sum up to the chunks'.
std::vector<uint32_t> ChecksumsOf(std::span<const Range> memory, std::span<const uint64_t> chunks);

}  // namespace mooncake::store
