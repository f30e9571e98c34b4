// Allocator: extents of [0, capacity), for memory that it never touches. Two-level segregated fit
// with coalescing; its records lie outside the memory it manages.
//
// Thread safety: none; one owner.
// Invariants: blocks tile [0, capacity) in address order; no two neighbours are both free; every
// free block is in the list of its size class; used_bytes is the sum of the used blocks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

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

  // REQUIRES: capacity_bytes >= kGranularity; what exceeds a multiple of it is not used.
  explicit Allocator(uint64_t capacity_bytes);

  // Grants `bytes`, or nothing when no free extent is that large. Constant time but when only the
  // exact size class could hold it, which is then searched.
  // REQUIRES: bytes > 0.
  [[nodiscard]] std::optional<Extent> Allocate(uint64_t bytes);

  // REQUIRES: `block` is of an extent that was granted and not freed since.
  void Free(uint32_t block);

  uint64_t capacity_bytes() const { return capacity_ * kGranularity; }
  uint64_t used_bytes() const { return used_ * kGranularity; }
  uint64_t free_bytes() const { return capacity_bytes() - used_bytes(); }
  uint64_t LargestFreeExtent() const;

  // Ends the process if an invariant does not hold. Linear; for tests.
  void Check() const;

 private:
  static constexpr uint32_t kNone = ~0u;
  static constexpr int kSubBits = 5;
  static constexpr int kSubs = 1 << kSubBits;
  static constexpr int kClasses = 64 - kSubBits + 1;

  // Offsets and sizes are in units of the granularity.
  struct Block {
    uint64_t offset;
    uint64_t size;
    uint32_t before, after;   // neighbours in memory
    uint32_t previous, next;  // of its free list; `next` also links unused records
    bool is_free;
  };
  struct Class {
    int first, second;
  };

  static Class ClassOf(uint64_t size);
  uint32_t FindFree(uint64_t size) const;
  uint32_t FirstOfLargerClass(uint64_t size) const;
  uint32_t FirstFitInClass(uint64_t size) const;
  void InsertFree(uint32_t block);
  void RemoveFree(uint32_t block);
  void SplitTail(uint32_t block, uint64_t size);
  uint32_t Merge(uint32_t left, uint32_t right);
  uint32_t NewRecord();
  void DropRecord(uint32_t block);

  uint64_t capacity_;
  uint64_t used_ = 0;
  std::vector<Block> blocks_;
  uint32_t unused_ = kNone;
  uint64_t first_map_ = 0;
  std::array<uint32_t, kClasses> second_map_{};
  std::array<std::array<uint32_t, kSubs>, kClasses> heads_;
};

}  // namespace mooncake
