// fifo: who came first into a class goes first, however often it is used. While it is held it keeps
// its place; if its turn comes meanwhile, it gets one more lap from when it is let go.
#pragma once

#include "policy/eviction.h"

namespace mooncake {

class FifoEviction final : public Eviction {
 public:
  FifoEviction() : Eviction(kEvictionClasses) {}

 private:
  void Added(uint32_t id, const EvictionTraits& traits) override;
  void Used(uint32_t) override {}
  void Moved(uint32_t id, EvictionClass from, bool goes_next) override;
  void Leaving(uint32_t id) override { LeavePlace(id); }
  uint32_t FirstOf(EvictionClass in) override;
  uint32_t AfterInClass(uint32_t id) override;

  // The bits of the mark above the class: the list that it has its place in plus one, or 0.
  int PlaceOf(uint32_t id) const { return static_cast<int>(ids_.mark(id) / kMarks) - 1; }
  void SetPlace(uint32_t id, int list);
  void LeavePlace(uint32_t id);
  uint32_t SkipHeld(uint32_t id);
};

}  // namespace mooncake
