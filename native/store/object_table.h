// ObjectTable: the master's objects, compact: one record and one allocation an object, found by
// key, linked into lists per node without further memory.
//
// Thread safety: none; one owner. References to records stay valid until Drop.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "store/allocator.h"

namespace mooncake::store {

inline constexpr uint32_t kNoIndex = ~0u;

enum class ObjectState : uint8_t {
  kUnused,     // the record is free
  kWriting,    // the key is taken, readers do not see it
  kCommitted,  // visible
  kRemoved,    // no key any more; kept while leased
};

// One copy, and its links in its node's list.
struct Copy {
  uint64_t offset;
  uint32_t block;  // of the node's allocator
  uint32_t node;   // index of the node's slot
  uint32_t previous, next;
};

struct Object {
  uint64_t generation = 0;
  uint64_t size_bytes = 0;
  uint64_t part_bytes = 0;
  uint64_t touched = 0;  // larger: used later
  uint64_t owner = 0;    // writing: session; committed: 0
  uint64_t put_id = 0;
  std::unique_ptr<uint64_t[]> data;  // copies, then checksums, then key
  uint32_t hash = 0;
  uint32_t key_bytes = 0;
  uint32_t checksum_count = 0;
  uint32_t leases = 0;
  ObjectState state = ObjectState::kUnused;
  uint8_t copy_count = 0;
  uint8_t copy_slots = 0;

  std::span<Copy> copies() { return {reinterpret_cast<Copy*>(data.get()), copy_count}; }
  std::span<const Copy> copies() const {
    return {reinterpret_cast<const Copy*>(data.get()), copy_count};
  }
  std::span<const uint32_t> checksums() const { return {ChecksumStart(), checksum_count}; }
  std::string_view key() const {
    return {reinterpret_cast<const char*>(ChecksumStart() + checksum_count), key_bytes};
  }
  void DropCopy(size_t at);
  void SetChecksums(std::span<const uint32_t> checksums);
  void Fill(std::string_view key, std::span<const Copy> copies,
            std::span<const uint32_t> checksums);

 private:
  const uint32_t* ChecksumStart() const {
    return reinterpret_cast<const uint32_t*>(reinterpret_cast<const Copy*>(data.get()) +
                                             copy_slots);
  }
};

class ObjectTable {
 public:
  // Returns the index of the object that owns `key`, or kNoIndex.
  uint32_t Find(std::string_view key) const;

  // Makes a record with no copies yet, in state kWriting.
  // REQUIRES: `key` is not there.
  uint32_t Add(std::string_view key, std::span<const Copy> copies);

  // Takes the key away; the record stays.
  void Forget(uint32_t index);

  // Gives the record back. REQUIRES: its key was forgotten.
  void Drop(uint32_t index);

  Object& operator[](uint32_t index) { return records_[index]; }
  const Object& operator[](uint32_t index) const { return records_[index]; }
  size_t key_count() const { return key_count_; }
  size_t record_count() const { return records_.size(); }

 private:
  static uint32_t HashOf(std::string_view key);
  size_t SlotOf(uint32_t index) const;
  void Place(uint32_t index);
  void Grow();

  std::deque<Object> records_;
  std::vector<uint32_t> unused_;
  std::vector<uint32_t> slots_;  // open addressing, linear probing, a power of two
  size_t key_count_ = 0;
};

// A node's list of its copies, in order of use. Links lie in the objects.
struct CopyList {
  uint32_t head = kNoIndex, tail = kNoIndex;
  uint64_t bytes = 0;  // of the extents in it

  void PushBack(ObjectTable& objects, uint32_t node, uint32_t index, uint64_t extent_bytes);
  void Remove(ObjectTable& objects, uint32_t node, uint32_t index, uint64_t extent_bytes);
};

// The object's copy on a node. REQUIRES: it has one there.
Copy& CopyOn(Object& object, uint32_t node);

}  // namespace mooncake::store
