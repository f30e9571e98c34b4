#include "policy/fifo.h"

namespace mooncake {

void FifoEviction::SetPlace(uint32_t id, int list) {
  uint32_t& mark = ids_.mark(id);
  mark = mark % kMarks + static_cast<uint32_t>(list + 1) * kMarks;
}

void FifoEviction::LeavePlace(uint32_t id) {
  if (PlaceOf(id) < 0) return;
  ids_.Remove(id);
  SetPlace(id, -1);
}

void FifoEviction::Added(uint32_t id, const EvictionTraits&) {
  if (ClassOf(id) != EvictionClass::kHeld) Moved(id, EvictionClass::kHeld, false);
}

void FifoEviction::Moved(uint32_t id, EvictionClass, bool goes_next) {
  const int list = static_cast<int>(ClassOf(id));
  const bool keeps = ClassOf(id) == EvictionClass::kHeld || PlaceOf(id) == list;
  if (keeps && !goes_next) return;
  LeavePlace(id);
  if (ClassOf(id) == EvictionClass::kHeld) return;
  goes_next ? ids_.PushFront(list, id) : ids_.PushBack(list, id);
  SetPlace(id, list);
}

uint32_t FifoEviction::FirstOf(EvictionClass in) {
  return SkipHeld(ids_.First(static_cast<int>(in)));
}

uint32_t FifoEviction::AfterInClass(uint32_t id) { return SkipHeld(ids_.After(id)); }

// Those whose turn has come while they are held lose their place, so that none is skipped twice.
uint32_t FifoEviction::SkipHeld(uint32_t id) {
  while (id != kNone && ClassOf(id) == EvictionClass::kHeld) {
    const uint32_t held = id;
    id = ids_.After(id);
    LeavePlace(held);
  }
  return id;
}

}  // namespace mooncake
