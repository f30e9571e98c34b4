#include "store/allocator.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace mooncake {

Allocator::Allocator(uint64_t capacity_bytes) : capacity_(capacity_bytes / kGranularity) {
  MC_CHECK(capacity_ > 0 && capacity_bytes <= kMaxCapacity, "capacity %llu",
           static_cast<unsigned long long>(capacity_bytes));
  for (auto& heads : heads_) heads.fill(kNone);
  first_ = NewRecord();
  blocks_[first_] = Block{0, capacity_, false, kNone, kNone, {}};
  InsertFree(first_);
}

// Sizes below kSubs have a class each; above, each power of two is cut into kSubs classes.
Allocator::Class Allocator::ClassOf(uint64_t size) {
  if (size < kSubs) return {0, static_cast<int>(size)};
  const int top = std::bit_width(size) - 1;
  const int second = static_cast<int>(size >> (top - kSubBits)) - kSubs;
  return {top - kSubBits + 1, second};
}

uint64_t Allocator::UnitsOf(uint64_t bytes) {
  MC_CHECK(bytes > 0, "an extent of 0 bytes");
  return bytes / kGranularity + (bytes % kGranularity != 0);
}

std::optional<Extent> Allocator::Allocate(uint64_t bytes, uint64_t tag) {
  const uint32_t block = FindFree(UnitsOf(bytes));
  if (block == kNone) return std::nullopt;
  return AllocateFrom(block, bytes, tag);
}

Extent Allocator::AllocateFrom(uint32_t block, uint64_t bytes, uint64_t tag) {
  const uint64_t size = UnitsOf(bytes);
  MC_CHECK(blocks_[block].is_free && blocks_[block].size >= size, "block %u is too small", block);
  if (blocks_[block].size > size) {
    block = SplitHead(block, size);
  } else {
    RemoveFree(block);
  }
  blocks_[block].tag = tag;
  used_ += size;
  return Extent{blocks_[block].offset * kGranularity, size * kGranularity, block};
}

uint32_t Allocator::Free(uint32_t block) {
  MC_CHECK(block < record_count_ && !blocks_[block].is_free && blocks_[block].size > 0,
           "block %u is not in use", block);
  used_ -= blocks_[block].size;
  const uint32_t before = blocks_[block].before;
  if (before != kNone && blocks_[before].is_free) {
    RemoveFree(before);
    Merge(before, block);
    block = before;
  }
  const uint32_t after = blocks_[block].after;
  if (after != kNone && blocks_[after].is_free) {
    RemoveFree(after);
    Merge(block, after);
  }
  InsertFree(block);
  return block;
}

// Looks where Allocate looks, so that what it returns is granted, and no more is.
uint64_t Allocator::LargestFreeExtent() const {
  if (first_map_ == 0) return 0;
  const int first = std::bit_width(first_map_) - 1;
  const int second = std::bit_width(second_map_[first]) - 1;
  uint64_t largest = 0;
  uint32_t at = heads_[first][second];
  for (int looked = 0; at != kNone && looked < kSearch; ++looked) {
    largest = std::max<uint64_t>(largest, blocks_[at].size);
    at = blocks_[at].list.next;
  }
  return largest * kGranularity;
}

double Allocator::fragmentation() const {
  if (free_bytes() == 0) return 0;
  return 1 - static_cast<double>(LargestFreeExtent()) / static_cast<double>(free_bytes());
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
  for (int looked = 0; at != kNone && looked < kSearch; ++looked) {
    if (blocks_[at].size >= size) return at;
    at = blocks_[at].list.next;
  }
  return kNone;
}

void Allocator::InsertFree(uint32_t block) {
  Block& added = blocks_[block];
  const auto [first, second] = ClassOf(added.size);
  uint32_t& head = heads_[first][second];
  added.is_free = true;
  added.list = {kNone, head};
  if (head != kNone) blocks_[head].list.previous = block;
  head = block;
  first_map_ |= 1ull << first;
  second_map_[first] |= 1u << second;
}

void Allocator::RemoveFree(uint32_t block) {
  Block& gone = blocks_[block];
  const auto [first, second] = ClassOf(gone.size);
  uint32_t& head = heads_[first][second];
  const auto [previous, next] = gone.list;
  if (previous != kNone) blocks_[previous].list.next = next;
  if (next != kNone) blocks_[next].list.previous = previous;
  if (head == block) head = next;
  gone.is_free = false;
  if (head != kNone) return;
  second_map_[first] &= ~(1u << second);
  if (second_map_[first] == 0) first_map_ &= ~(1ull << first);
}

// Cuts a used block off a free one, which stays in its list if its class does.
uint32_t Allocator::SplitHead(uint32_t block, uint64_t size) {
  const uint32_t head = NewRecord();
  Block& rest = blocks_[block];
  blocks_[head] = Block{rest.offset, size, false, rest.before, block, {}};
  (rest.before != kNone ? blocks_[rest.before].after : first_) = head;
  rest.before = head;
  const bool moves = ClassOf(rest.size) != ClassOf(rest.size - size);
  if (moves) RemoveFree(block);
  rest.offset += size;
  rest.size -= size;
  if (moves) InsertFree(block);
  return head;
}

void Allocator::Merge(uint32_t left, uint32_t right) {
  Block& whole = blocks_[left];
  whole.size += blocks_[right].size;
  whole.after = blocks_[right].after;
  if (whole.after != kNone) blocks_[whole.after].before = left;
  DropRecord(right);
}

uint32_t Allocator::NewRecord() {
  if (unused_ == kNone) {
    blocks_.Cover(record_count_);
    return record_count_++;
  }
  const uint32_t block = unused_;
  unused_ = blocks_[block].list.next;
  return block;
}

void Allocator::DropRecord(uint32_t block) {
  blocks_[block] = Block{0, 0, false, kNone, kNone, {Links{kNone, unused_}}};
  unused_ = block;
}

void Allocator::Check() const {
  uint64_t offset = 0, used = 0, free_blocks = 0;
  bool was_free = false;
  uint32_t before = kNone;
  for (uint32_t at = first_; at != kNone; before = at, at = blocks_[at].after) {
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
  CheckLists(free_blocks);
}

void Allocator::CheckLists(uint64_t free_blocks) const {
  for (int first = 0; first < kClasses; ++first) {
    for (int second = 0; second < kSubs; ++second) {
      for (uint32_t at = heads_[first][second]; at != kNone; at = blocks_[at].list.next) {
        const Class own = ClassOf(blocks_[at].size);
        MC_CHECK(blocks_[at].is_free && own == (Class{first, second}), "list of block %u", at);
        --free_blocks;
      }
    }
  }
  MC_CHECK(free_blocks == 0, "a free block is in no list");
}

}  // namespace mooncake
