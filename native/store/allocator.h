// Allocator: extents of [0, capacity), for memory that it never touches. Two-level segregated fit
// with coalescing; its records lie outside the memory it manages, 32 bytes a block.
//
// Every operation takes constant time, whatever the number of blocks: of a class of sizes at most
// kSearch blocks are looked at. So of the blocks whose class is the wanted size's own one may be
// missed, which would have held it; a block that is larger by 1/32 is always found, and so is the
// one that was freed last.
//
// Thread safety: none; one owner.
// Invariants: blocks tile [0, capacity) in address order; no two neighbours are both free; every
// free block is in the list of its size class; used_bytes is the sum of the used blocks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/chunked_array.h"

namespace mooncake {

// A granted range. `block` names it when it is freed.
struct Extent {
  uint64_t offset = 0;
  uint64_t bytes = 0;  // what was asked for, rounded up to the granularity
  uint32_t block = 0;
};

class Allocator {
 public:
  static constexpr uint64_t kGranularity = 64;
  static constexpr uint64_t kMaxCapacity = 1ull << 63;
  static constexpr uint32_t kNone = ~0u;

  // REQUIRES: kGranularity <= capacity_bytes <= kMaxCapacity; what exceeds a multiple of the
  // granularity is not used.
  explicit Allocator(uint64_t capacity_bytes);

  // Grants `bytes`, or nothing when no free extent was found that is that large. `tag` is the
  // owner's word about the block, for TagOf.
  // REQUIRES: bytes > 0.
  [[nodiscard]] std::optional<Extent> Allocate(uint64_t bytes, uint64_t tag = 0);
  // The free block that Allocate would take it from, or kNone.
  uint32_t Fitting(uint64_t bytes) const { return FindFree(UnitsOf(bytes)); }

  // Grants the beginning of one free block.
  // REQUIRES: `block` is free and 0 < bytes <= BytesOf(block).
  [[nodiscard]] Extent AllocateFrom(uint32_t block, uint64_t bytes, uint64_t tag = 0);

  // Returns the free block that holds the range now, joined with its free neighbours.
  // REQUIRES: `block` is of an extent that was granted and not freed since.
  uint32_t Free(uint32_t block);

  uint64_t capacity_bytes() const { return capacity_ * kGranularity; }
  uint64_t used_bytes() const { return used_ * kGranularity; }
  uint64_t free_bytes() const { return capacity_bytes() - used_bytes(); }
  // The largest that Allocate would grant now.
  uint64_t LargestFreeExtent() const;
  // The share of the free bytes that is not in the largest free extent; 0 when nothing is free.
  double fragmentation() const;

  // Blocks, used and free, in the order of their addresses. Numbers are small and used again:
  // they are less than block_room(). kNone: there is none on that side.
  // REQUIRES: `block` is of a granted extent, or was returned here, and neither it nor a neighbour
  // was freed or granted since.
  uint64_t OffsetOf(uint32_t block) const { return blocks_[block].offset * kGranularity; }
  uint64_t BytesOf(uint32_t block) const { return blocks_[block].size * kGranularity; }
  bool IsFree(uint32_t block) const { return blocks_[block].is_free; }
  uint32_t Before(uint32_t block) const { return blocks_[block].before; }
  uint32_t After(uint32_t block) const { return blocks_[block].after; }
  uint32_t first_block() const { return first_; }
  uint32_t block_room() const { return record_count_; }
  // REQUIRES: the block is in use.
  uint64_t TagOf(uint32_t block) const { return blocks_[block].tag; }
  void SetTag(uint32_t block, uint64_t tag) { blocks_[block].tag = tag; }

  // Ends the process if an invariant does not hold. Linear; for tests.
  void Check() const;

 private:
  static constexpr int kSubBits = 5;
  static constexpr int kSubs = 1 << kSubBits;
  static constexpr int kClasses = 64 - kSubBits + 1;
  static constexpr int kSearch = 64;

  struct Links {
    uint32_t previous, next;  // `next` also links unused records
  };
  // Offsets and sizes are in units of the granularity. A size of 0: the record is unused.
  struct Block {
    uint64_t offset;
    uint64_t size : 63;
    uint64_t is_free : 1;
    uint32_t before, after;  // neighbours in memory
    union {
      Links list;    // of free blocks
      uint64_t tag;  // of used ones
    };
  };
  static_assert(sizeof(Block) == 32);
  struct Class {
    int first, second;
    bool operator==(const Class&) const = default;
  };

  static Class ClassOf(uint64_t size);
  static uint64_t UnitsOf(uint64_t bytes);
  uint32_t FindFree(uint64_t size) const;
  uint32_t FirstOfLargerClass(uint64_t size) const;
  uint32_t FirstFitInClass(uint64_t size) const;
  void InsertFree(uint32_t block);
  void RemoveFree(uint32_t block);
  uint32_t SplitHead(uint32_t block, uint64_t size);
  void Merge(uint32_t left, uint32_t right);
  uint32_t NewRecord();
  void DropRecord(uint32_t block);
  void CheckLists(uint64_t free_blocks) const;

  uint64_t capacity_;
  uint64_t used_ = 0;
  ChunkedArray<Block> blocks_;
  uint32_t record_count_ = 0;
  uint32_t unused_ = kNone;
  uint32_t first_ = kNone;  // the block at offset 0
  uint64_t first_map_ = 0;
  std::array<uint32_t, kClasses> second_map_{};
  std::array<std::array<uint32_t, kSubs>, kClasses> heads_;
};

}  // namespace mooncake
