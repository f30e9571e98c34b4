// ObjectTable: the master's objects, compact: a record of one cache line each, what varies in a
// slab beside it, found by key.
//
// Thread safety: none; one owner. References to records stay valid until Drop; views into an object
// until its copies change or it is dropped.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "base/chunked_array.h"
#include "store/growing_table.h"
#include "store/key_hash.h"
#include "store/messages.h"
#include "store/slab.h"

namespace mooncake::store {

inline constexpr uint32_t kNoIndex = ~0u;

enum class ObjectState : uint8_t {
  kUnused,     // the record is free
  kWriting,    // readers do not see it
  kCommitted,  // visible, if it can be read
  kRemoved,    // no key any more; kept while it is held or has children
};

// Where one stripe of one copy is. Void once its node was lost.
struct CopyExtent {
  uint32_t node : 31;
  uint32_t is_retired : 1;  // of a copy's first: not for new readers, gone when nobody holds it
  uint32_t block;           // of the node's allocator; kNoIndex: void

  bool is_void() const { return block == kNoIndex; }
};

struct alignas(64) Object {
  uint64_t generation = 0;
  uint64_t size_bytes = 0;
  uint8_t* data = nullptr;  // Head, extents, part size if there are parts, checksums, key
  // The chain: objects whose parent this is are a list from `child` on.
  uint32_t parent = kNoIndex, child = kNoIndex, next = kNoIndex, previous = kNoIndex;
  uint32_t depth = 0;
  uint32_t group = kNoIndex;
  uint32_t holds = 0;    // leases, and copies in the making
  uint32_t touched = 0;  // when it was last used, in a count of uses that wraps around
  uint32_t heat = 0;     // for who replicates by use
  ObjectState state = ObjectState::kUnused;
  uint8_t copy_count = 0;
  uint8_t wanted = 0;  // copies; those from this number on are extra
  Pin pin : 2 = Pin::kNone;
  bool has_key : 1 = false;
  bool has_parts : 1 = false;
  bool is_upsert : 1 = false;
  bool is_superseded : 1 = false;  // writing: another took its key
  bool is_doomed : 1 = false;      // writing: its group has died
  bool has_retired : 1 = false;    // a copy is

  struct Head {
    uint32_t checksum_count;
    uint32_t key_bytes;
    uint16_t stripes;
    uint8_t copy_slots;
    bool has_checksums;  // an object without bytes has none either way
  };
  Head& head() { return *reinterpret_cast<Head*>(data); }
  const Head& head() const { return *reinterpret_cast<const Head*>(data); }

  // Stripe by stripe, copy by copy.
  std::span<CopyExtent> extents() { return {Extents(), size_t{copy_count} * head().stripes}; }
  std::span<const CopyExtent> extents() const {
    return {Extents(), size_t{copy_count} * head().stripes};
  }
  std::span<CopyExtent> copy(size_t at) {
    return {Extents() + at * head().stripes, head().stripes};
  }
  std::span<const CopyExtent> copy(size_t at) const {
    return {Extents() + at * head().stripes, head().stripes};
  }
  uint64_t part_bytes() const {
    uint64_t bytes = 0;
    if (has_parts) std::memcpy(&bytes, AfterExtents(), sizeof bytes);
    return bytes;
  }
  std::span<uint32_t> checksums() { return {Checksums(), head().checksum_count}; }
  std::span<const uint32_t> checksums() const { return {Checksums(), head().checksum_count}; }
  std::string_view key() const {
    return {reinterpret_cast<const char*>(Checksums() + head().checksum_count), head().key_bytes};
  }

 private:
  CopyExtent* Extents() const { return reinterpret_cast<CopyExtent*>(data + sizeof(Head)); }
  uint8_t* AfterExtents() const {
    return reinterpret_cast<uint8_t*>(Extents() + size_t{head().copy_slots} * head().stripes);
  }
  uint32_t* Checksums() const {
    return reinterpret_cast<uint32_t*>(AfterExtents() + (has_parts ? sizeof(uint64_t) : 0));
  }
};
static_assert(sizeof(Object) == 64);

// What an object is from its beginning on.
struct ObjectShape {
  std::string_view key{};
  uint64_t size_bytes = 0;
  uint64_t part_bytes = 0;
  bool has_checksums = true;
  uint16_t stripes = 1;
};

class ObjectTable {
 public:
  explicit ObjectTable(uint64_t seed) : seed_(seed) {}

  uint32_t HashOf(std::string_view key) const {
    return static_cast<uint32_t>(HashKey(key, seed_) >> 32);
  }
  // The object that owns `key`, or kNoIndex.
  uint32_t Find(std::string_view key) const { return Find(key, HashOf(key)); }
  uint32_t Find(std::string_view key, uint32_t hash) const;

  // Brings near what Find will look at: the slots of all keys of a batch, then the records, then
  // the keys themselves, each at best before the next is asked for.
  void PrefetchSlot(uint32_t hash) const { keys_.Prefetch(hash); }
  void PrefetchRecord(uint32_t hash) const;
  void PrefetchData(uint32_t hash) const;

  // Makes a record in state kWriting, with room for copies but none yet, and without its key taken.
  uint32_t Add(const ObjectShape& shape, uint8_t copy_slots);

  // REQUIRES: nobody has the object's key, and it is `hash`ed so.
  void TakeKey(uint32_t index, uint32_t hash);
  void ForgetKey(uint32_t index);

  // Appends a copy. REQUIRES: it has as many extents as the object has stripes.
  void AddCopy(uint32_t index, std::span<const CopyExtent> extents);
  void EraseCopy(uint32_t index, size_t at);

  // Gives back what varies, the key with it. REQUIRES: it has no copies, and its key was forgotten.
  void FreeData(uint32_t index);
  // Gives the record back. REQUIRES: its data was freed.
  void Drop(uint32_t index);

  Object& operator[](uint32_t index) { return records_[index]; }
  const Object& operator[](uint32_t index) const { return records_[index]; }
  size_t key_count() const { return keys_.size(); }
  uint32_t record_count() const { return record_count_; }  // indexes are less
  const Slab& slab() const { return slab_; }

 private:
  struct Slot {
    uint32_t hash = 0;
    uint32_t number = 0;  // index + 1
    bool is_set() const { return number != 0; }
  };

  static size_t DataBytes(const Object& object, uint8_t copy_slots);
  void Resize(Object& object, uint8_t copy_slots);

  const uint64_t seed_;
  ChunkedArray<Object> records_;
  uint32_t record_count_ = 0;
  uint32_t unused_ = kNoIndex;  // linked by `next`
  GrowingTable<Slot, 12> keys_;
  Slab slab_;
};

}  // namespace mooncake::store
