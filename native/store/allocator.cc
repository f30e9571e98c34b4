#include "store/allocator.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace mooncake {

Allocator::Allocator(uint64_t capacity_bytes) : capacity_(capacity_bytes / kGranularity) {
  MC_CHECK(capacity_ > 0, "capacity %llu", static_cast<unsigned long long>(capacity_bytes));
  for (auto& heads : heads_) heads.fill(kNone);
  const uint32_t whole = NewRecord();
  blocks_[whole] = Block{0, capacity_, kNone, kNone, kNone, kNone, false};
  InsertFree(whole);
}

// Sizes below kSubs have a class each; above, each power of two is cut into kSubs classes.
Allocator::Class Allocator::ClassOf(uint64_t size) {
  if (size < kSubs) return {0, static_cast<int>(size)};
  const int top = std::bit_width(size) - 1;
  const int second = static_cast<int>(size >> (top - kSubBits)) - kSubs;
  return {top - kSubBits + 1, second};
}

std::optional<Extent> Allocator::Allocate(uint64_t bytes) {
  MC_CHECK(bytes > 0, "an extent of 0 bytes");
  const uint64_t size = bytes / kGranularity + (bytes % kGranularity != 0);
  const uint32_t block = FindFree(size);
  if (block == kNone) return std::nullopt;
  RemoveFree(block);
  if (blocks_[block].size > size) SplitTail(block, size);
  used_ += size;
  return Extent{blocks_[block].offset * kGranularity, size * kGranularity, block};
}

void Allocator::Free(uint32_t block) {
  MC_CHECK(block < blocks_.size() && !blocks_[block].is_free && blocks_[block].size > 0,
           "block %u is not in use", block);
  used_ -= blocks_[block].size;
  const uint32_t before = blocks_[block].before;
  if (before != kNone && blocks_[before].is_free) {
    RemoveFree(before);
    block = Merge(before, block);
  }
  const uint32_t after = blocks_[block].after;
  if (after != kNone && blocks_[after].is_free) {
    RemoveFree(after);
    block = Merge(block, after);
  }
  InsertFree(block);
}

uint64_t Allocator::LargestFreeExtent() const {
  if (first_map_ == 0) return 0;
  const int first = std::bit_width(first_map_) - 1;
  const int second = std::bit_width(second_map_[first]) - 1;
  uint64_t largest = blocks_[heads_[first][second]].size;
  if (first == 0) return largest * kGranularity;  // a class of one size
  for (uint32_t at = heads_[first][second]; at != kNone; at = blocks_[at].next) {
    largest = std::max(largest, blocks_[at].size);
  }
  return largest * kGranularity;
}

uint32_t Allocator::FindFree(uint64_t size) const {
  if (size > capacity_ - used_) return kNone;
  const uint32_t block = FirstOfLargerClass(size);
  return block != kNone ? block : FirstFitInClass(size);
}

// Every block of a class above the size's own is large enough.
uint32_t Allocator::FirstOfLargerClass(uint64_t size) const {
  const auto [first, second] = ClassOf(size);
  const uint64_t seconds = second + 1 < kSubs ? second_map_[first] & (~0u << (second + 1)) : 0;
  if (seconds != 0) return heads_[first][std::countr_zero(seconds)];
  const uint64_t firsts = first + 1 < kClasses ? first_map_ & (~0ull << (first + 1)) : 0;
  if (firsts == 0) return kNone;
  const int larger = std::countr_zero(firsts);
  return heads_[larger][std::countr_zero(second_map_[larger])];
}

uint32_t Allocator::FirstFitInClass(uint64_t size) const {
  const auto [first, second] = ClassOf(size);
  uint32_t at = heads_[first][second];
  while (at != kNone && blocks_[at].size < size) at = blocks_[at].next;
  return at;
}

void Allocator::InsertFree(uint32_t block) {
  const auto [first, second] = ClassOf(blocks_[block].size);
  uint32_t& head = heads_[first][second];
  blocks_[block].is_free = true;
  blocks_[block].previous = kNone;
  blocks_[block].next = head;
  if (head != kNone) blocks_[head].previous = block;
  head = block;
  first_map_ |= 1ull << first;
  second_map_[first] |= 1u << second;
}

void Allocator::RemoveFree(uint32_t block) {
  Block& gone = blocks_[block];
  const auto [first, second] = ClassOf(gone.size);
  uint32_t& head = heads_[first][second];
  if (gone.previous != kNone) blocks_[gone.previous].next = gone.next;
  if (gone.next != kNone) blocks_[gone.next].previous = gone.previous;
  if (head == block) head = gone.next;
  gone.is_free = false;
  if (head != kNone) return;
  second_map_[first] &= ~(1u << second);
  if (second_map_[first] == 0) first_map_ &= ~(1ull << first);
}

void Allocator::SplitTail(uint32_t block, uint64_t size) {
  const uint32_t rest = NewRecord();
  Block& head = blocks_[block];
  blocks_[rest] =
      Block{head.offset + size, head.size - size, block, head.after, kNone, kNone, false};
  if (head.after != kNone) blocks_[head.after].before = rest;
  head.after = rest;
  head.size = size;
  InsertFree(rest);
}

uint32_t Allocator::Merge(uint32_t left, uint32_t right) {
  blocks_[left].size += blocks_[right].size;
  blocks_[left].after = blocks_[right].after;
  if (blocks_[left].after != kNone) blocks_[blocks_[left].after].before = left;
  DropRecord(right);
  return left;
}

uint32_t Allocator::NewRecord() {
  if (unused_ == kNone) {
    blocks_.emplace_back();
    return static_cast<uint32_t>(blocks_.size() - 1);
  }
  const uint32_t block = unused_;
  unused_ = blocks_[block].next;
  return block;
}

void Allocator::DropRecord(uint32_t block) {
  blocks_[block] = Block{0, 0, kNone, kNone, kNone, unused_, false};
  unused_ = block;
}

void Allocator::Check() const {
  uint64_t offset = 0, used = 0, free_blocks = 0;
  bool was_free = false;
  uint32_t before = kNone;
  // The block at offset 0 is never merged away, so record 0 is always first.
  for (uint32_t at = 0; at != kNone; before = at, at = blocks_[at].after) {
    const Block& block = blocks_[at];
    MC_CHECK(block.offset == offset && block.size > 0 && block.before == before, "block %u", at);
    MC_CHECK(!(was_free && block.is_free), "blocks %u and %u are both free", before, at);
    offset += block.size;
    used += block.is_free ? 0 : block.size;
    free_blocks += block.is_free;
    was_free = block.is_free;
  }
  MC_CHECK(offset == capacity_ && used == used_, "tiled %llu, used %llu",
           static_cast<unsigned long long>(offset), static_cast<unsigned long long>(used));
  for (int first = 0; first < kClasses; ++first) {
    for (int second = 0; second < kSubs; ++second) {
      for (uint32_t at = heads_[first][second]; at != kNone; at = blocks_[at].next) {
        const Class own = ClassOf(blocks_[at].size);
        MC_CHECK(blocks_[at].is_free && own.first == first && own.second == second, "list");
        --free_blocks;
      }
    }
  }
  MC_CHECK(free_blocks == 0, "a free block is in no list");
}

}  // namespace mooncake
