#include "policy/lfu.h"

#include <algorithm>

namespace mooncake {
namespace {

constexpr uint64_t kFewestUsesToAge = 64;

}  // namespace

uint32_t LfuEviction::LevelOf(uint32_t id) const {
  return std::max(ids_.mark(id) / kMarks, lowest_);
}

// kLevels lists a class, taken round by level.
int LfuEviction::ListOf(EvictionClass in, uint32_t level) {
  return static_cast<int>(in) * kLevels + static_cast<int>(level % kLevels);
}

void LfuEviction::Added(uint32_t id, const EvictionTraits&) {
  ids_.mark(id) += lowest_ * kMarks;
  ids_.PushBack(ListOf(ClassOf(id), lowest_), id);
}

void LfuEviction::Used(uint32_t id) {
  const uint32_t level = std::min(LevelOf(id) + 1, lowest_ + kLevels - 1);
  ids_.Remove(id);
  ids_.mark(id) = ids_.mark(id) % kMarks + level * kMarks;
  ids_.PushBack(ListOf(ClassOf(id), level), id);
  if (++used_since_aging_ >= std::max(count(), kFewestUsesToAge)) Age();
}

void LfuEviction::Moved(uint32_t id, EvictionClass, bool goes_next) {
  const int list = ListOf(ClassOf(id), LevelOf(id));
  ids_.Remove(id);
  goes_next ? ids_.PushFront(list, id) : ids_.PushBack(list, id);
}

uint32_t LfuEviction::AfterInClass(uint32_t id) {
  if (const uint32_t after = ids_.After(id); after != kNone) return after;
  return FirstFrom(ClassOf(id), LevelOf(id) + 1);
}

uint32_t LfuEviction::FirstFrom(EvictionClass in, uint32_t level) const {
  for (; level < lowest_ + kLevels; ++level) {
    if (const uint32_t id = ids_.First(ListOf(in, level)); id != kNone) return id;
  }
  return kNone;
}

// The two lowest levels become one; the list of the lower is the new highest's.
void LfuEviction::Age() {
  used_since_aging_ = 0;
  for (int in = 0; in < kEvictionClasses; ++in) {
    const auto of = static_cast<EvictionClass>(in);
    ids_.JoinFront(ListOf(of, lowest_), ListOf(of, lowest_ + 1));
  }
  ++lowest_;
}

}  // namespace mooncake
