// Where objects lie: placement, eviction, quarantine, and the nodes' coming and going.
#include <algorithm>

#include "base/check.h"
#include "store/master_core.h"

namespace mooncake::store {
namespace {

// A node that is silent is suspected after the time to live, and lost after so many of them.
constexpr double kLostAfter = 2;
constexpr size_t kRemembered = 1 << 16;

}  // namespace

uint64_t MasterCore::ExtentBytes(const Object& object) {
  const uint64_t bytes = kHeaderBytes + object.size_bytes;
  return (bytes + Allocator::kGranularity - 1) / Allocator::kGranularity * Allocator::kGranularity;
}

uint32_t MasterCore::AppendPlacements(const Object& object, bool readable_only,
                                      std::vector<NodeAddress>& nodes,
                                      std::vector<Placement>& placements) const {
  uint32_t count = 0;
  for (const Copy& copy : object.copies()) {
    const Node& node = nodes_[copy.node];
    if (readable_only && node.state != NodeState::kOnline) continue;
    const auto named = std::ranges::find(nodes, node.id, &NodeAddress::node);
    placements.push_back({static_cast<uint32_t>(named - nodes.begin()), copy.offset});
    if (named == nodes.end()) nodes.push_back({node.id, node.endpoint});
    ++count;
  }
  return count;
}

// As many copies as distinct nodes can hold, at most `count`; none when not even one fits.
std::vector<Copy> MasterCore::PlaceCopies(uint64_t bytes, uint32_t count) {
  std::vector<Copy> copies;
  while (copies.size() < count) {
    const auto copy = PlaceCopy(bytes, copies);
    if (!copy) break;
    copies.push_back(*copy);
  }
  return copies;
}

// Evicts the least recently used objects of the nodes that could hold it until one of them does.
std::optional<Copy> MasterCore::PlaceCopy(uint64_t bytes, std::span<const Copy> taken) {
  const std::vector<uint32_t> nodes = Candidates(bytes, taken);
  std::optional<Copy> copy = TryNodes(nodes, bytes);
  while (!copy) {
    const uint32_t victim = OldestOn(nodes);
    if (victim == kNoIndex) break;
    std::vector<uint32_t> freed;
    for (const Copy& gone : objects_[victim].copies()) {
      if (std::find(nodes.begin(), nodes.end(), gone.node) != nodes.end()) {
        freed.push_back(gone.node);
      }
    }
    Evict(victim);
    copy = TryNodes(freed, bytes);
  }
  return copy;
}

// Nodes that could hold it if all that is evictable went, those with most free space first.
std::vector<uint32_t> MasterCore::Candidates(uint64_t bytes, std::span<const Copy> taken) const {
  std::vector<uint32_t> nodes;
  for (uint32_t slot = 0; slot < nodes_.size(); ++slot) {
    const Node& node = nodes_[slot];
    if (!node.allocator || node.state != NodeState::kOnline) continue;
    if (node.allocator->free_bytes() + node.evictable.bytes < bytes) continue;
    const bool is_taken = std::any_of(taken.begin(), taken.end(),
                                      [slot](const Copy& copy) { return copy.node == slot; });
    if (!is_taken) nodes.push_back(slot);
  }
  std::stable_sort(nodes.begin(), nodes.end(), [this](uint32_t left, uint32_t right) {
    return nodes_[left].allocator->free_bytes() > nodes_[right].allocator->free_bytes();
  });
  return nodes;
}

std::optional<Copy> MasterCore::TryNodes(std::span<const uint32_t> nodes, uint64_t bytes) {
  for (const uint32_t slot : nodes) {
    if (const auto extent = nodes_[slot].allocator->Allocate(bytes)) {
      return Copy{extent->offset, extent->block, slot, kNoIndex, kNoIndex};
    }
  }
  return std::nullopt;
}

uint32_t MasterCore::OldestOn(std::span<const uint32_t> nodes) const {
  uint32_t oldest = kNoIndex;
  for (const uint32_t slot : nodes) {
    const uint32_t head = nodes_[slot].evictable.head;
    if (head == kNoIndex) continue;
    if (oldest == kNoIndex || objects_[head].touched < objects_[oldest].touched) oldest = head;
  }
  return oldest;
}

void MasterCore::Evict(uint32_t index) {
  ++counters_.evictions;
  RemoveObject(index);
}

CopyList& MasterCore::ListOf(const Object& object, uint32_t node) {
  const bool is_evictable = object.state == ObjectState::kCommitted && object.leases == 0;
  return is_evictable ? nodes_[node].evictable : nodes_[node].busy;
}

// Puts the object's copies last in the lists that its state asks for.
void MasterCore::Link(uint32_t index) {
  Object& object = objects_[index];
  object.touched = ++last_touch_;
  for (const Copy& copy : object.copies()) {
    ListOf(object, copy.node).PushBack(objects_, copy.node, index, ExtentBytes(object));
  }
}

void MasterCore::Unlink(uint32_t index) {
  const Object& object = objects_[index];
  for (const Copy& copy : object.copies()) {
    ListOf(object, copy.node).Remove(objects_, copy.node, index, ExtentBytes(object));
  }
}

// Gives one copy's space back, or into quarantine when `dirty_peer` may still write it.
void MasterCore::ReleaseCopy(uint32_t index, size_t at, const uint64_t* dirty_peer) {
  Object& object = objects_[index];
  const Copy copy = object.copies()[at];
  const uint64_t bytes = ExtentBytes(object);
  Node& node = nodes_[copy.node];
  ListOf(object, copy.node).Remove(objects_, copy.node, index, bytes);
  object.DropCopy(at);
  if (dirty_peer == nullptr) {
    node.allocator->Free(copy.block);
    return;
  }
  auto& quarantine = node.quarantine[*dirty_peer];
  if (quarantine.extents.empty()) ++counters_.fences;
  quarantine.extents.push_back({copy.offset, bytes, copy.block});
  node.quarantined_bytes += bytes;
  RememberFenced(*dirty_peer);
}

// Takes the key away at once; the space follows when the last lease ends.
void MasterCore::RemoveObject(uint32_t index) {
  Unlink(index);
  objects_.Forget(index);
  Link(index);
  if (objects_[index].leases == 0) FreeObject(index);
}

void MasterCore::FreeObject(uint32_t index) {
  while (objects_[index].copy_count > 0) {
    ReleaseCopy(index, objects_[index].copy_count - 1, nullptr);
  }
  objects_.Drop(index);
}

void MasterCore::FreeQuarantine(Node& node, uint64_t peer_id) {
  const auto found = node.quarantine.find(peer_id);
  if (found == node.quarantine.end()) return;
  for (const Extent& extent : found->second.extents) {
    node.allocator->Free(extent.block);
    node.quarantined_bytes -= extent.bytes;
  }
  node.quarantine.erase(found);
}

// A client whose id is forgotten here still learns from the node that it was fenced.
void MasterCore::RememberFenced(uint64_t peer_id) {
  if (fenced_peers_.size() >= kRemembered) fenced_peers_.erase(fenced_peers_.begin());
  fenced_peers_.insert(peer_id);
}

uint32_t MasterCore::SlotOf(NodeId node) const {
  const auto found = slot_of_node_.find(node);
  return found == slot_of_node_.end() ? kNoIndex : found->second;
}

NodeReply MasterCore::Answer(const Node& node) const {
  NodeReply reply{true, options_.epoch, options_.client_ttl_s, {}, {}};
  for (const auto& [peer_id, quarantine] : node.quarantine) reply.fence.push_back(peer_id);
  return reply;
}

NodeReply MasterCore::Step(const NodeRegister& event, double now_s) {
  now_s = Advance(now_s);
  const bool is_named = event.node != 0 && event.endpoint.size() <= kMaxNameBytes &&
                        event.host_id.size() <= kMaxNameBytes &&
                        event.name.size() <= kMaxNameBytes && event.domain.size() <= kMaxNameBytes;
  const bool is_welcome =
      is_named && event.epoch == options_.epoch && !lost_nodes_.contains(event.node) &&
      event.capacity_bytes >= Allocator::kGranularity && event.capacity_bytes <= kMaxNodeBytes;
  if (!is_welcome) return {false, options_.epoch, options_.client_ttl_s, {}, {}};
  if (SlotOf(event.node) != kNoIndex) return Step(NodeHeartbeat{event.node, {}, {}}, now_s);
  // One engine lends one segment: whoever had this address has taken new memory, or died.
  for (uint32_t slot = 0; slot < nodes_.size(); ++slot) {
    if (nodes_[slot].allocator && nodes_[slot].endpoint == event.endpoint) LoseNode(slot);
  }
  uint32_t slot = 0;
  while (slot < nodes_.size() && nodes_[slot].allocator) ++slot;
  if (slot == nodes_.size()) nodes_.emplace_back();
  Node& node = nodes_[slot];
  node.id = event.node;
  node.endpoint = event.endpoint;
  node.host_id = event.host_id;
  node.name = event.name.empty() ? event.endpoint : event.name;
  node.domain = event.domain.empty() ? event.host_id : event.domain;
  node.allocator.emplace(event.capacity_bytes);
  node.seen_s = now_s;
  node.lost_s = now_s + kLostAfter * options_.client_ttl_s;
  slot_of_node_[event.node] = slot;
  return Answer(node);
}

NodeReply MasterCore::Step(const NodeHeartbeat& event, double now_s) {
  now_s = Advance(now_s);
  const uint32_t slot = SlotOf(event.node);
  if (slot == kNoIndex) return {false, options_.epoch, options_.client_ttl_s, {}, {}};
  Node& node = nodes_[slot];
  node.state = NodeState::kOnline;
  node.seen_s = now_s;
  node.lost_s = now_s + kLostAfter * options_.client_ttl_s;
  for (const uint64_t peer_id : event.fenced) FreeQuarantine(node, peer_id);
  return Answer(node);
}

void MasterCore::NodeGoodbye(NodeId node) {
  if (const uint32_t slot = SlotOf(node); slot != kNoIndex) LoseNode(slot);
}

void MasterCore::NodeDisconnected(NodeId id, double now_s) {
  now_s = Advance(now_s);
  const uint32_t slot = SlotOf(id);
  if (slot == kNoIndex) return;
  nodes_[slot].state = NodeState::kSuspected;
  nodes_[slot].lost_s = std::min(nodes_[slot].lost_s, now_s + options_.client_ttl_s);
}

void MasterCore::TickNodes(double now_s) {
  for (uint32_t slot = 0; slot < nodes_.size(); ++slot) {
    Node& node = nodes_[slot];
    if (!node.allocator) continue;
    if (now_s - node.seen_s > options_.client_ttl_s) node.state = NodeState::kSuspected;
    if (now_s <= node.lost_s) continue;
    ++counters_.lost_nodes;
    LoseNode(slot);
  }
}

// Its copies and its quarantine go with its memory. Its id is never taken again.
void MasterCore::LoseNode(uint32_t slot) {
  if (lost_nodes_.size() >= kRemembered) lost_nodes_.erase(lost_nodes_.begin());
  lost_nodes_.insert(nodes_[slot].id);
  slot_of_node_.erase(nodes_[slot].id);
  LoseCopies(nodes_[slot].evictable, slot);
  LoseCopies(nodes_[slot].busy, slot);
  nodes_[slot] = Node{};
}

void MasterCore::LoseCopies(CopyList& list, uint32_t slot) {
  while (list.head != kNoIndex) {
    const uint32_t index = list.head;
    Object& object = objects_[index];
    list.Remove(objects_, slot, index, ExtentBytes(object));
    object.DropCopy(&CopyOn(object, slot) - object.copies().data());
    if (object.copy_count > 0 || object.state == ObjectState::kWriting) continue;
    if (object.state == ObjectState::kCommitted) RemoveObject(index);
  }
}

Space MasterCore::SpaceOf(bool online_only) const {
  Space space;
  for (const Node& node : nodes_) {
    if (!node.allocator || (online_only && node.state != NodeState::kOnline)) continue;
    space.capacity += node.allocator->capacity_bytes();
    space.used += node.allocator->used_bytes();
    space.evictable += node.evictable.bytes;
    space.pinned += node.busy.bytes;
    space.quarantined += node.quarantined_bytes;
    space.largest_free_extent =
        std::max(space.largest_free_extent, node.allocator->LargestFreeExtent());
  }
  return space;
}

Stats MasterCore::Report() const {
  Stats stats;
  stats.epoch = options_.epoch;
  stats.clients = sessions_.size();
  stats.objects = objects_.key_count() - writing_;
  stats.writing = writing_;
  stats.leases = leases_.size();
  stats.space = SpaceOf(false);
  stats.counters = counters_;
  for (const Node& node : nodes_) {
    if (!node.allocator) continue;
    stats.nodes.push_back({node.id, node.endpoint, node.host_id, node.name, node.domain,
                           node.allocator->capacity_bytes(), node.allocator->used_bytes(),
                           node.quarantined_bytes, node.state});
  }
  return stats;
}

}  // namespace mooncake::store
