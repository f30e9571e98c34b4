// The inventory's invariants, checked from scratch. Linear; for tests.
#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "store/inventory.h"

namespace mooncake::store {

void Inventory::CheckNode(uint32_t slot) const {
  const NodeRecord& node = nodes_[slot];
  const Allocator& allocator = *node.allocator;
  const NodeView& view = nodes_.views()[slot];
  allocator.Check();
  node.policy->Check();
  std::vector<uint32_t> waiting(node.fenced);
  for (const auto& [peer_id, quarantine] : node.quarantine) {
    waiting.insert(waiting.end(), quarantine.blocks.begin(), quarantine.blocks.end());
  }
  uint64_t quarantined = 0;
  for (const uint32_t block : waiting) quarantined += allocator.BytesOf(block);
  std::ranges::sort(waiting);
  MC_CHECK(std::ranges::adjacent_find(waiting) == waiting.end(), "node %u: quarantine", slot);
  uint64_t evictable = 0, policed = 0;
  for (uint32_t at = allocator.first_block(); at != Allocator::kNone; at = allocator.After(at)) {
    const bool is_policed = node.policy->Contains(at);
    policed += is_policed;
    if (allocator.IsFree(at)) {
      MC_CHECK(!is_policed, "node %u: free block %u may be evicted", slot, at);
      continue;
    }
    const auto index = static_cast<uint32_t>(allocator.TagOf(at));
    if (index == kNoIndex) {
      const bool is_known =
          node.is_lost || node.reserved.contains(at) || std::ranges::binary_search(waiting, at);
      MC_CHECK(!is_policed && is_known, "node %u: block %u is nobody's", slot, at);
      continue;
    }
    const Object& object = objects_[index];
    const size_t copy = CopyAt(object, slot, at);
    MC_CHECK(is_policed == (object.state == ObjectState::kCommitted), "object %u", index);
    if (!is_policed) continue;
    const EvictionClass in = node.policy->ClassOf(at);
    const bool is_unsettled = object.group != kNoIndex && groups_[object.group].unsettled > 0;
    MC_CHECK(is_unsettled || in == ClassOf(object, copy), "class of object %u", index);
    if (in != EvictionClass::kHeld) evictable += allocator.BytesOf(at);
  }
  MC_CHECK(policed == node.policy->count(), "node %u: policy", slot);
  MC_CHECK(evictable == view.evictable_bytes, "node %u: evictable", slot);
  MC_CHECK(allocator.free_bytes() == view.free_bytes, "node %u: free", slot);
  MC_CHECK(quarantined == node.quarantined_bytes || node.is_lost, "node %u: quarantine", slot);
}

void Inventory::CheckObject(uint32_t index) const {
  const Object& object = objects_[index];
  for (uint32_t child = object.child; child != kNoIndex; child = objects_[child].next) {
    const Object& below = objects_[child];
    MC_CHECK(below.parent == index && below.state != ObjectState::kUnused, "object %u", child);
    MC_CHECK(below.state != ObjectState::kRemoved, "object %u is gone", child);
    const bool is_linked = below.next == kNoIndex || objects_[below.next].previous == child;
    MC_CHECK(is_linked && (child != object.child || below.previous == kNoIndex), "object %u",
             child);
  }
  if (object.state == ObjectState::kRemoved) {
    MC_CHECK(object.holds > 0 || object.child != kNoIndex, "object %u leaks", index);
    MC_CHECK(!object.has_key && object.group == kNoIndex && object.parent == kNoIndex,
             "object %u is still known", index);
  }
  if (object.data == nullptr) return;
  const bool is_found = objects_.Find(object.key()) == index;
  MC_CHECK(is_found == object.has_key, "key of object %u", index);
  MC_CHECK(object.state != ObjectState::kCommitted || object.has_key, "object %u", index);
  MC_CHECK(object.state != ObjectState::kCommitted || object.copy_count > 0, "object %u", index);
  std::vector<uint32_t> before;  // domains of the copies before
  for (size_t copy = 0; copy < object.copy_count; ++copy) {
    std::vector<uint32_t> own;
    for (const CopyExtent& extent : object.copy(copy)) {
      if (extent.is_void()) continue;
      const NodeRecord& node = nodes_[extent.node];
      MC_CHECK(node.allocator && !node.allocator->IsFree(extent.block), "object %u", index);
      MC_CHECK(node.allocator->TagOf(extent.block) == index, "extent of object %u", index);
      const uint32_t domain = nodes_.views()[extent.node].domain;
      const bool is_shared = std::ranges::find(before, domain) != before.end();
      const bool is_retired = object.copy(copy)[0].is_retired;
      MC_CHECK(!is_shared || node.is_lost || is_retired, "two copies of object %u in one domain",
               index);
      // A copy that is retired shares with the one that replaces it.
      if (!is_retired) own.push_back(domain);
    }
    before.insert(before.end(), own.begin(), own.end());
  }
}

void Inventory::CheckGroups() const {
  std::vector<uint32_t> members(groups_.room()), committed(groups_.room());
  std::vector<std::array<uint32_t, 3>> pins(groups_.room());
  for (uint32_t index = 0; index < objects_.record_count(); ++index) {
    const Object& object = objects_[index];
    if (object.group == kNoIndex) continue;
    ++members[object.group];
    committed[object.group] += object.state == ObjectState::kCommitted;
    ++pins[object.group][static_cast<int>(object.pin)];
  }
  for (uint32_t group = 0; group < groups_.room(); ++group) {
    MC_CHECK(groups_[group].members.size() == members[group], "members of group %u", group);
    MC_CHECK(groups_[group].committed == committed[group], "committed of group %u", group);
    MC_CHECK(groups_[group].pins == pins[group], "pins of group %u", group);
  }
}

void Inventory::Check() const {
  for (uint32_t slot = 0; slot < nodes_.size(); ++slot) {
    if (nodes_[slot].allocator) CheckNode(slot);
  }
  uint64_t keys = 0, committed = 0, data = 0;
  std::array<uint64_t, 3> pinned{};
  for (uint32_t index = 0; index < objects_.record_count(); ++index) {
    const Object& object = objects_[index];
    if (object.state == ObjectState::kUnused) continue;
    CheckObject(index);
    keys += object.has_key;
    committed += object.state == ObjectState::kCommitted;
    data += object.data != nullptr;
    if (object.data != nullptr) pinned[static_cast<int>(object.pin)] += TotalBytes(object);
  }
  MC_CHECK(keys == objects_.key_count(), "keys");
  MC_CHECK(committed == committed_, "committed");
  MC_CHECK(pinned == pinned_bytes_, "pinned bytes");
  MC_CHECK(data > 0 || objects_.slab().used_bytes() == 0, "the slab leaks");
  objects_.slab().Check();
  CheckGroups();
}

}  // namespace mooncake::store
