// lru: the least recently used of its class goes first. Coming back from being held, or from
// another class, is a use.
#pragma once

#include "policy/eviction.h"

namespace mooncake {

class LruEviction final : public Eviction {
 public:
  LruEviction() : Eviction(kEvictionClasses) {}

 private:
  void Added(uint32_t id, const EvictionTraits&) override { ids_.PushBack(ListOf(id), id); }
  void Used(uint32_t id) override {
    ids_.Remove(id);
    ids_.PushBack(ListOf(id), id);
  }
  void Moved(uint32_t id, EvictionClass, bool goes_next) override {
    ids_.Remove(id);
    goes_next ? ids_.PushFront(ListOf(id), id) : ids_.PushBack(ListOf(id), id);
  }
  void Leaving(uint32_t id) override { ids_.Remove(id); }
  uint32_t FirstOf(EvictionClass in) override { return ids_.First(static_cast<int>(in)); }
  uint32_t AfterInClass(uint32_t id) override { return ids_.After(id); }

  int ListOf(uint32_t id) const { return static_cast<int>(ClassOf(id)); }
};

}  // namespace mooncake
