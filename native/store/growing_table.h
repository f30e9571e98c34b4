// GrowingTable: a hash table that never stops to grow: what it holds moves a few slots an insert,
// and memory comes and goes in chunks. Open addressing, ordered by hash, at most three quarters
// full.
//
// Thread safety: none; one owner. Pointers to slots are good until the next Insert or Erase.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"

namespace mooncake::store {

// A Slot has `hash` and `is_set()`; Slot{} is not set.
template <typename Slot, int kChunkBits>
class GrowingTable {
 public:
  // The slot of this hash that `equal` is true of, or null.
  template <typename Equal>
  Slot* Find(uint32_t hash, Equal equal) {
    Level& level = LevelOf(hash);
    for (uint64_t at = level.HomeOf(hash);; ++at) {
      Slot* slot = level.Peek(at);
      if (slot == nullptr || !slot->is_set()) return nullptr;
      if (slot->hash == hash && equal(*slot)) return slot;
    }
  }
  template <typename Equal>
  const Slot* Find(uint32_t hash, Equal equal) const {
    return const_cast<GrowingTable*>(this)->Find(hash, equal);
  }

  void Prefetch(uint32_t hash) const {
    auto& level = const_cast<GrowingTable*>(this)->LevelOf(hash);
    if (const Slot* slot = level.Peek(level.HomeOf(hash))) __builtin_prefetch(slot);
  }

  void Insert(const Slot& slot) {
    Migrate(kMigrated);
    if (old_.chunks.empty() && (size_ + 1) * 4 > now_.size() * 3) Grow();
    LevelOf(slot.hash).Insert(slot);
    ++size_;
  }

  // REQUIRES: it was found.
  template <typename Equal>
  void Erase(uint32_t hash, Equal equal) {
    Level& level = LevelOf(hash);
    uint64_t at = level.HomeOf(hash);
    for (;; ++at) {
      const Slot* slot = level.Peek(at);
      MC_CHECK(slot != nullptr && slot->is_set(), "hash %08x is not there", hash);
      if (slot->hash == hash && equal(*slot)) break;
    }
    level.Erase(at);
    --size_;
  }

  // Walks all slots that are set, from cursor 0 on; null: that was all. REQUIRES: no Insert or
  // Erase meanwhile.
  const Slot* Next(uint64_t& cursor) {
    for (;; ++cursor) {
      const uint64_t before = old_.room();
      if (cursor >= before + now_.room()) return nullptr;
      const Slot* slot = cursor < before ? old_.Peek(cursor) : now_.Peek(cursor - before);
      if (slot == nullptr || !slot->is_set()) continue;
      ++cursor;
      return slot;
    }
  }

  size_t size() const { return size_; }

 private:
  static constexpr uint64_t kChunk = 1ull << kChunkBits;
  static constexpr int kMigrated = 16;  // slots an insert; a table is old for 1/16 of its inserts

  // Slots lie in the order of their hashes, each at its home or in the run that begins there. A
  // chunk beyond the last home takes what runs over.
  struct Level {
    std::vector<std::unique_ptr<Slot[]>> chunks;
    int bits = 0;

    uint64_t size() const { return chunks.empty() ? 0 : 1ull << bits; }
    uint64_t room() const { return chunks.size() << kChunkBits; }
    uint64_t HomeOf(uint32_t hash) const { return uint64_t{hash} >> (32 - bits); }
    Slot* Peek(uint64_t at) {
      if (at >= room() || !chunks[at >> kChunkBits]) return nullptr;
      return &chunks[at >> kChunkBits][at & (kChunk - 1)];
    }
    Slot& At(uint64_t at) {
      MC_CHECK(at < room(), "a run of more than %llu slots",
               static_cast<unsigned long long>(kChunk));
      auto& chunk = chunks[at >> kChunkBits];
      if (!chunk) chunk = std::make_unique<Slot[]>(kChunk);
      return chunk[at & (kChunk - 1)];
    }
    void Insert(const Slot& slot) {
      uint64_t at = HomeOf(slot.hash);
      while (At(at).is_set()) ++at;
      At(at) = slot;
    }
    // Closes the gap: moves back who probed past it.
    void Erase(uint64_t hole) {
      for (uint64_t at = hole + 1;; ++at) {
        Slot* slot = Peek(at);
        if (slot == nullptr || !slot->is_set()) break;
        if (HomeOf(slot->hash) > hole) continue;
        At(hole) = *slot;
        hole = at;
      }
      At(hole) = Slot{};
    }
  };

  // Homes below `migrated_` of the old level have moved; the slot before it is empty.
  Level& LevelOf(uint32_t hash) {
    return !old_.chunks.empty() && old_.HomeOf(hash) >= migrated_ ? old_ : now_;
  }

  void Grow() {
    const int bits = now_.chunks.empty() ? kChunkBits : now_.bits + 1;
    MC_CHECK(bits <= 32, "%zu slots", size_);
    old_ = std::move(now_);
    now_ = Level{};
    now_.bits = bits;
    now_.chunks.resize((1ull << (bits - kChunkBits)) + 1);
    migrated_ = 0;
  }

  // Moves whole runs, about `count` slots.
  void Migrate(int count) {
    if (old_.chunks.empty()) return;
    for (bool is_boundary = false; count > 0 || !is_boundary; --count) {
      if (migrated_ == old_.room()) {
        old_ = Level{};
        return;
      }
      Slot* slot = old_.Peek(migrated_);
      is_boundary = slot == nullptr || !slot->is_set();
      if (!is_boundary) now_.Insert(std::exchange(*slot, Slot{}));
      if (++migrated_ % kChunk == 0) old_.chunks[(migrated_ >> kChunkBits) - 1].reset();
    }
  }

  Level now_, old_;
  uint64_t migrated_ = 0;
  size_t size_ = 0;
};

}  // namespace mooncake::store
