#include "store/object_table.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace mooncake::store {

void Object::Fill(std::string_view key, std::span<const Copy> copies,
                  std::span<const uint32_t> checksums) {
  const size_t bytes = copies.size_bytes() + checksums.size_bytes() + key.size();
  auto fresh = std::make_unique<uint64_t[]>(bytes / 8 + 1);
  char* at = reinterpret_cast<char*>(fresh.get());
  auto append = [&at](const void* from, size_t count) {
    if (count > 0) std::memcpy(at, from, count);
    at += count;
  };
  append(copies.data(), copies.size_bytes());
  append(checksums.data(), checksums.size_bytes());
  append(key.data(), key.size());
  data = std::move(fresh);
  copy_count = copy_slots = static_cast<uint8_t>(copies.size());
  checksum_count = static_cast<uint32_t>(checksums.size());
  key_bytes = static_cast<uint32_t>(key.size());
}

void Object::SetChecksums(std::span<const uint32_t> checksums) {
  const auto old = std::move(data);  // key and copies are views into it
  const Copy* copies = reinterpret_cast<const Copy*>(old.get());
  const auto* key_start = reinterpret_cast<const char*>(copies + copy_slots) + 4 * checksum_count;
  Fill({key_start, key_bytes}, {copies, copy_count}, checksums);
}

void Object::DropCopy(size_t at) {
  auto all = copies();
  std::copy(all.begin() + at + 1, all.end(), all.begin() + at);
  --copy_count;
}

uint32_t ObjectTable::HashOf(std::string_view key) {
  const uint64_t hash = std::hash<std::string_view>{}(key);
  return static_cast<uint32_t>(hash ^ (hash >> 32));
}

uint32_t ObjectTable::Find(std::string_view key) const {
  if (slots_.empty()) return kNoIndex;
  const size_t mask = slots_.size() - 1;
  const uint32_t hash = HashOf(key);
  for (size_t slot = hash & mask;; slot = (slot + 1) & mask) {
    const uint32_t index = slots_[slot];
    if (index == kNoIndex) return kNoIndex;
    if (records_[index].hash == hash && records_[index].key() == key) return index;
  }
}

uint32_t ObjectTable::Add(std::string_view key, std::span<const Copy> copies) {
  if (unused_.empty()) {
    records_.emplace_back();
    unused_.push_back(static_cast<uint32_t>(records_.size() - 1));
  }
  const uint32_t index = unused_.back();
  unused_.pop_back();
  Object& object = records_[index];
  object.Fill(key, copies, {});
  object.hash = HashOf(key);
  object.state = ObjectState::kWriting;
  if ((key_count_ + 1) * 4 > slots_.size() * 3) Grow();
  Place(index);
  ++key_count_;
  return index;
}

void ObjectTable::Place(uint32_t index) {
  const size_t mask = slots_.size() - 1;
  size_t slot = records_[index].hash & mask;
  while (slots_[slot] != kNoIndex) slot = (slot + 1) & mask;
  slots_[slot] = index;
}

void ObjectTable::Grow() {
  const std::vector<uint32_t> old = std::move(slots_);
  slots_.assign(std::max<size_t>(64, old.size() * 2), kNoIndex);
  for (const uint32_t index : old) {
    if (index != kNoIndex) Place(index);
  }
}

size_t ObjectTable::SlotOf(uint32_t index) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = records_[index].hash & mask;
  while (slots_[slot] != index) {
    MC_CHECK(slots_[slot] != kNoIndex, "object %u has no key", index);
    slot = (slot + 1) & mask;
  }
  return slot;
}

void ObjectTable::Forget(uint32_t index) {
  const size_t mask = slots_.size() - 1;
  size_t hole = SlotOf(index);
  // Close the gap: move back whoever probed past it.
  for (size_t slot = (hole + 1) & mask; slots_[slot] != kNoIndex; slot = (slot + 1) & mask) {
    const size_t home = records_[slots_[slot]].hash & mask;
    if (((slot - home) & mask) < ((slot - hole) & mask)) continue;
    slots_[hole] = slots_[slot];
    hole = slot;
  }
  slots_[hole] = kNoIndex;
  --key_count_;
  records_[index].state = ObjectState::kRemoved;
}

void ObjectTable::Drop(uint32_t index) {
  MC_CHECK(records_[index].state == ObjectState::kRemoved, "object %u still has its key", index);
  records_[index] = Object{};
  unused_.push_back(index);
}

Copy& CopyOn(Object& object, uint32_t node) {
  for (Copy& copy : object.copies()) {
    if (copy.node == node) return copy;
  }
  MC_CHECK(false, "no copy on node %u", node);
  __builtin_unreachable();
}

void CopyList::PushBack(ObjectTable& objects, uint32_t node, uint32_t index,
                        uint64_t extent_bytes) {
  Copy& copy = CopyOn(objects[index], node);
  copy.previous = tail;
  copy.next = kNoIndex;
  if (tail != kNoIndex) CopyOn(objects[tail], node).next = index;
  if (head == kNoIndex) head = index;
  tail = index;
  bytes += extent_bytes;
}

void CopyList::Remove(ObjectTable& objects, uint32_t node, uint32_t index, uint64_t extent_bytes) {
  const Copy& copy = CopyOn(objects[index], node);
  (copy.previous != kNoIndex ? CopyOn(objects[copy.previous], node).next : head) = copy.next;
  (copy.next != kNoIndex ? CopyOn(objects[copy.next], node).previous : tail) = copy.previous;
  bytes -= extent_bytes;
}

}  // namespace mooncake::store
