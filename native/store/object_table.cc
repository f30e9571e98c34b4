#include "store/object_table.h"

#include <algorithm>

#include "base/check.h"

namespace mooncake::store {

uint32_t ObjectTable::Find(std::string_view key, uint32_t hash) const {
  const Slot* slot =
      keys_.Find(hash, [&](const Slot& each) { return records_[each.number - 1].key() == key; });
  return slot != nullptr ? slot->number - 1 : kNoIndex;
}

void ObjectTable::PrefetchRecord(uint32_t hash) const {
  const Slot* slot = keys_.Find(hash, [](const Slot&) { return true; });
  if (slot != nullptr) __builtin_prefetch(&records_[slot->number - 1]);
}

void ObjectTable::PrefetchData(uint32_t hash) const {
  const Slot* slot = keys_.Find(hash, [](const Slot&) { return true; });
  if (slot != nullptr) __builtin_prefetch(records_[slot->number - 1].data);
}

size_t ObjectTable::DataBytes(const Object& object, uint8_t copy_slots) {
  const Object::Head& head = object.head();
  return sizeof(Object::Head) + sizeof(CopyExtent) * copy_slots * head.stripes +
         (object.has_parts ? sizeof(uint64_t) : 0) + sizeof(uint32_t) * head.checksum_count +
         head.key_bytes;
}

uint32_t ObjectTable::Add(const ObjectShape& shape, uint8_t copy_slots) {
  uint32_t index = unused_;
  if (index == kNoIndex) {
    index = record_count_++;
    records_.Cover(index);
  } else {
    unused_ = records_[index].next;
  }
  Object& object = records_[index];
  object = Object{};
  object.size_bytes = shape.size_bytes;
  object.has_parts = shape.part_bytes != 0;
  const uint64_t chunks = shape.has_checksums ? ChunkCount(shape.size_bytes, shape.part_bytes) : 0;
  Object::Head head{static_cast<uint32_t>(chunks), static_cast<uint32_t>(shape.key.size()),
                    shape.stripes, copy_slots, shape.has_checksums};
  object.data = reinterpret_cast<uint8_t*>(&head);  // for DataBytes
  object.data = slab_.Allocate(DataBytes(object, copy_slots));
  object.head() = head;
  uint8_t* rest = reinterpret_cast<uint8_t*>(object.checksums().data());
  if (object.has_parts) std::memcpy(rest - sizeof(uint64_t), &shape.part_bytes, sizeof(uint64_t));
  std::fill_n(object.checksums().data(), chunks, 0);
  if (!shape.key.empty()) {
    std::memcpy(rest + 4 * chunks, shape.key.data(), shape.key.size());
  }
  object.state = ObjectState::kWriting;
  return index;
}

void ObjectTable::TakeKey(uint32_t index, uint32_t hash) {
  keys_.Insert({hash, index + 1});
  records_[index].has_key = true;
}

void ObjectTable::ForgetKey(uint32_t index) {
  keys_.Erase(HashOf(records_[index].key()),
              [index](const Slot& slot) { return slot.number == index + 1; });
  records_[index].has_key = false;
}

void ObjectTable::AddCopy(uint32_t index, std::span<const CopyExtent> extents) {
  Object& object = records_[index];
  MC_CHECK(extents.size() == object.head().stripes, "object %u: %zu extents", index,
           extents.size());
  if (object.copy_count == object.head().copy_slots) Resize(object, object.copy_count + 1);
  ++object.copy_count;
  std::ranges::copy(extents, object.copy(object.copy_count - 1).begin());
}

void ObjectTable::EraseCopy(uint32_t index, size_t at) {
  Object& object = records_[index];
  const auto all = object.extents();
  std::copy(object.copy(at).end(), all.end(), object.copy(at).begin());
  --object.copy_count;
}

void ObjectTable::Resize(Object& object, uint8_t copy_slots) {
  uint8_t* old = object.data;
  const size_t old_bytes = DataBytes(object, object.head().copy_slots);
  const size_t old_extents = sizeof(CopyExtent) * object.head().copy_slots * object.head().stripes;
  const size_t extents = sizeof(CopyExtent) * copy_slots * object.head().stripes;
  const size_t tail = old_bytes - sizeof(Object::Head) - old_extents;
  uint8_t* fresh = slab_.Allocate(sizeof(Object::Head) + extents + tail);
  std::memcpy(fresh, old, sizeof(Object::Head) + std::min(old_extents, extents));
  std::memcpy(fresh + sizeof(Object::Head) + extents, old + sizeof(Object::Head) + old_extents,
              tail);
  object.data = fresh;
  object.head().copy_slots = copy_slots;
  slab_.Free(old, old_bytes);
}

void ObjectTable::FreeData(uint32_t index) {
  Object& object = records_[index];
  MC_CHECK(!object.has_key && object.copy_count == 0, "object %u is still in use", index);
  slab_.Free(object.data, DataBytes(object, object.head().copy_slots));
  object.data = nullptr;
}

void ObjectTable::Drop(uint32_t index) {
  MC_CHECK(records_[index].data == nullptr, "object %u still has its data", index);
  records_[index] = Object{};
  records_[index].next = unused_;
  unused_ = index;
}

}  // namespace mooncake::store
