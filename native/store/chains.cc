// Chains of objects: who stands behind whom, and that the last one goes first.
#include "store/inventory.h"

namespace mooncake::store {
namespace {

constexpr int kMaxDescent = 4096;  // what stands further behind is cut off and stays

}  // namespace

void Inventory::LinkToParent(uint32_t index, uint32_t parent) {
  Object& object = objects_[index];
  Object& above = objects_[parent];
  const bool was_leaf = above.child == kNoIndex;
  object.parent = parent;
  object.next = above.child;
  object.previous = kNoIndex;
  if (object.next != kNoIndex) objects_[object.next].previous = index;
  above.child = index;
  if (was_leaf) Reclassify(parent);
}

// A parent that was used since its last child was is not cold: it keeps its turn. Else it goes
// next.
void Inventory::UnlinkFromParent(uint32_t index, bool evicted) {
  Object& object = objects_[index];
  const uint32_t parent = object.parent;
  if (parent == kNoIndex) return;
  Object& above = objects_[parent];
  (object.previous != kNoIndex ? objects_[object.previous].next : above.child) = object.next;
  if (object.next != kNoIndex) objects_[object.next].previous = object.previous;
  object.parent = object.next = object.previous = kNoIndex;
  if (above.child != kNoIndex) return;
  if (above.state == ObjectState::kRemoved) return Sweep(parent);
  const bool is_colder = static_cast<int32_t>(above.touched - object.touched) <= 0;
  Reclassify(parent, evicted && is_colder && above.holds == 0);
}

// Children follow a new version of their parent that stands where the old one did. (Elsewhere it
// could stand behind them.) More than a step may relink stay behind the old one.
void Inventory::Adopt(uint32_t old, uint32_t fresh) {
  if (objects_[old].parent != objects_[fresh].parent) return;
  for (; adoptable_ > 0 && objects_[old].child != kNoIndex; --adoptable_) {
    const uint32_t child = objects_[old].child;
    UnlinkFromParent(child, false);
    LinkToParent(child, fresh);
  }
}

bool Inventory::CanGo(const Object& object) const {
  return object.state == ObjectState::kCommitted && object.holds == 0 &&
         PinOf(object) == Pin::kNone;
}

// Evicts an object and all behind it, the last ones first. What cannot go is cut off. False: the
// step's work is used up; what is left is still whole.
bool Inventory::EvictTree(uint32_t root) {
  int depth = 0;
  for (uint32_t at = root;;) {
    if (work_ <= 0) return false;
    const uint32_t child = objects_[at].child;
    if (child != kNoIndex && depth < kMaxDescent && CanGo(objects_[child])) {
      at = child;
      ++depth;
      continue;
    }
    --work_;
    if (child != kNoIndex) {
      UnlinkFromParent(child, false);
      continue;
    }
    const uint32_t parent = objects_[at].parent;
    EvictOne(at);
    if (at == root) return true;
    at = parent;
    --depth;
  }
}

void Inventory::EvictOne(uint32_t index) {
  ++counters_.evictions;
  counters_.evicted_bytes += TotalBytes(objects_[index]);
  Remove(index, Cause::kEvicted);
}

}  // namespace mooncake::store
