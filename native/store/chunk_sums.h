// ChunkSums: the checksums of an object's chunks, put together from those of runs of bytes that
// come in any order.
//
// Pure. Thread safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "store/layout.h"

namespace mooncake::store {

class ChunkSums {
 public:
  explicit ChunkSums(uint64_t chunk_count) : sums_(chunk_count) {}

  // `length` bytes of `chunk` from the object's byte `offset` on have this CRC-32C.
  // REQUIRES: no byte comes twice.
  void Add(const Chunk& chunk, uint64_t offset, uint64_t length, uint32_t checksum);

  // Whether every byte has come.
  bool IsWhole() const { return whole_ == sums_.size(); }
  // Right once it is whole.
  std::span<const uint32_t> all() const { return sums_; }

 private:
  struct Run {
    uint64_t end;
    uint32_t checksum;
  };

  std::vector<uint32_t> sums_;
  size_t whole_ = 0;              // of the chunks
  std::map<uint64_t, Run> runs_;  // by begin, of chunks that are not whole yet; none adjacent there
};

}  // namespace mooncake::store
