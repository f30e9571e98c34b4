// The master's invariants, checked from scratch. Linear; for tests.
#include <algorithm>

#include "base/check.h"
#include "store/master_core.h"

namespace mooncake::store {

void MasterCore::CheckList(const CopyList& list, uint32_t slot, bool evictable,
                           std::vector<Extent>& extents) const {
  uint64_t bytes = 0, touched = 0;
  for (uint32_t at = list.head; at != kNoIndex;) {
    const Object& object = objects_[at];
    const bool is_evictable = object.state == ObjectState::kCommitted && object.leases == 0;
    MC_CHECK(is_evictable == evictable, "object %u is in the wrong list", at);
    MC_CHECK(object.state != ObjectState::kRemoved || object.leases > 0, "object %u leaks", at);
    MC_CHECK(!evictable || object.touched > touched, "object %u is out of order", at);
    touched = object.touched;
    bytes += ExtentBytes(object);
    const auto copies = object.copies();
    const auto copy = std::find_if(copies.begin(), copies.end(),
                                   [slot](const Copy& each) { return each.node == slot; });
    MC_CHECK(copy != copies.end(), "object %u has no copy on node %u", at, slot);
    extents.push_back({copy->offset, ExtentBytes(object), copy->block});
    at = copy->next;
  }
  MC_CHECK(bytes == list.bytes, "list of node %u", slot);
}

void MasterCore::CheckNode(uint32_t slot) const {
  const Node& node = nodes_[slot];
  node.allocator->Check();
  std::vector<Extent> extents;
  CheckList(node.evictable, slot, true, extents);
  CheckList(node.busy, slot, false, extents);
  uint64_t quarantined = 0, used = 0, end = 0;
  for (const auto& [peer_id, quarantine] : node.quarantine) {
    for (const Extent& extent : quarantine.extents) {
      extents.push_back(extent);
      quarantined += extent.bytes;
    }
  }
  std::sort(extents.begin(), extents.end(),
            [](const Extent& left, const Extent& right) { return left.offset < right.offset; });
  for (const Extent& extent : extents) {
    MC_CHECK(extent.offset >= end, "node %u: extents overlap", slot);
    end = extent.offset + extent.bytes;
    used += extent.bytes;
  }
  MC_CHECK(end <= node.allocator->capacity_bytes(), "node %u: beyond its end", slot);
  MC_CHECK(used == node.allocator->used_bytes(), "node %u leaks", slot);
  MC_CHECK(quarantined == node.quarantined_bytes, "node %u: quarantine", slot);
}

void MasterCore::Check() const {
  for (uint32_t slot = 0; slot < nodes_.size(); ++slot) {
    if (nodes_[slot].allocator) CheckNode(slot);
  }
  std::vector<uint32_t> leases(objects_.record_count(), 0);
  for (const auto& [id, lease] : leases_) {
    MC_CHECK(sessions_.at(lease.session).leases.contains(id), "a lease without its session");
    for (const uint32_t index : lease.objects) ++leases[index];
  }
  MC_CHECK(leases_.size() == leases_by_end_.size(), "leases by end");
  size_t keys = 0, writing = 0;
  for (uint32_t index = 0; index < objects_.record_count(); ++index) {
    const Object& object = objects_[index];
    MC_CHECK(object.leases == leases[index], "object %u: leases", index);
    if (object.state == ObjectState::kUnused) continue;
    if (object.state == ObjectState::kRemoved) continue;
    ++keys;
    MC_CHECK(objects_.Find(object.key()) == index, "object %u is not found", index);
    MC_CHECK(object.state == ObjectState::kWriting || object.copy_count > 0, "object %u", index);
    if (object.state != ObjectState::kWriting) continue;
    ++writing;
    MC_CHECK(sessions_.at(object.owner).puts.at(object.put_id) == index, "object %u: put", index);
  }
  MC_CHECK(keys == objects_.key_count() && writing == writing_, "keys and puts");
}

}  // namespace mooncake::store
