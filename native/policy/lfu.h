// lfu: who was used least often goes first, of those the one that was used longest ago. Frequencies
// are small numbers that all go down by one each time that as many uses were counted as there are
// ids: what is used more often than the average climbs to kLevels, the rest sinks to 1.
#pragma once

#include "policy/eviction.h"

namespace mooncake {

class LfuEviction final : public Eviction {
 public:
  static constexpr int kLevels = 16;

  LfuEviction() : Eviction(kEvictionClasses * kLevels) {}

 private:
  void Added(uint32_t id, const EvictionTraits& traits) override;
  void Used(uint32_t id) override;
  void Moved(uint32_t id, EvictionClass from, bool goes_next) override;
  void Leaving(uint32_t id) override { ids_.Remove(id); }
  uint32_t FirstOf(EvictionClass in) override { return FirstFrom(in, lowest_); }
  uint32_t AfterInClass(uint32_t id) override;

  // Levels only ever rise: `lowest_` rises instead of every id's frequency going down. The bits of
  // a mark above the class are the level when it was last used.
  uint32_t LevelOf(uint32_t id) const;
  static int ListOf(EvictionClass in, uint32_t level);
  uint32_t FirstFrom(EvictionClass in, uint32_t level) const;
  void Age();

  uint32_t lowest_ = 0;
  uint64_t used_since_aging_ = 0;
};

}  // namespace mooncake
